"""An op rebuilt as a program: the compiled function, its arguments and settings; its compile up to
the selection; and tensors of given sizes and strides, always with equal values.

Some ops are called as torch's own operator (`call`), with tensors like the key's, the weights
frozen into the graph and packed like a program's, and with recorded options: a linear layer's
activation, the scales of a quantized one, the type of a result. Inductor merges ops into such an
operator before it tunes, so the operator is called as it is in the graph by then.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from backend.counted import counted
from backend.inductor.result_checks import Truth
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.captured import grouped_rows
from backend.model.options import FROZEN, Options
from backend.model.problem import TensorSpec


class NotRebuildable(Exception):
    """No program is known that leads to this op with these inputs; the message is one line."""


class OpNumbers(Protocol):
    """The numbers in the tensors of an op whose sizes do not suffice, and its expected result."""

    def given(self, place: int, name: str) -> Tensor | None:
        """Return the numbers at the beginning of the memory of a choice's input at `place`, which
        is called `name` in the graph. None if any numbers will do."""
        ...

    def truth(self, precision: str) -> Truth:
        """Return the expected result. Raises NoReference, and whatever torch raises."""
        ...

    def result(self, operands: Sequence[Tensor]) -> Tensor:
        """Return a choice's result from its operands after the run, the output last."""
        ...

    @property
    def note(self) -> str:
        """Return a caveat about the numbers for a reader of times, in a line, if any."""
        ...

    def forget(self) -> None:
        """Release the tensors; they will be created again when needed."""
        ...


def _by_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    compiled: Callable[..., Any] = torch.compile(function, dynamic=False)
    return compiled


@dataclass(frozen=True, slots=True)
class RebuiltProgram:
    """A program: `compiled()` is called on `arguments`, under `freezing` and Inductor's
    `settings`."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    freezing: bool
    settings: Mapping[str, object] = field(default_factory=dict)
    numbers: OpNumbers | None = None
    compiler: Callable[[Callable[..., Any]], Callable[..., Any]] = _by_dynamo

    def compiled(self) -> Callable[..., Any]:
        """Compile at the first call, on the arguments; then run."""
        return self.compiler(self.function)


class SelectionDone(Exception):
    """Ends a compile from within the selector, after it has received everything."""

    intended = True
    """No failure of the hooks of a process that records too; see `guard.is_intended`."""


def compile_asking(selector: object, program: RebuiltProgram, mode: Mapping[str, object]) -> str:
    """Compile a program in a mode of Inductor, without graph caches, with `selector`. Return the
    error in one line; empty on success."""
    torch_api.set_selector(selector)
    settings = torch_api.compile_settings(
        {**mode, **program.settings}, freezing=program.freezing, graph_cache=False
    )
    try:
        with settings, torch.no_grad():
            program.compiled()(*program.arguments)
    except Exception as error:  # a compiler error, or its wrapper of our end of the compile
        return torch_api.describe(error)
    return ""


def tensor_like(spec: TensorSpec) -> Any:
    """Return a tensor of that device, dtype, sizes, strides and offset, always with the same
    values. Frozen weights are part of the graph cache's key: equal weights hit the same entry."""
    return torch.as_strided(storage_of(spec), spec.sizes, spec.strides, spec.offset)


def storage_of(spec: TensorSpec) -> Any:
    """Return memory of one dimension, as long as the view of `spec` reaches."""
    return _filled(spec, 17, -8, 8)


def scale_like(spec: TensorSpec) -> Any:
    """Do what `tensor_like` does, with positive numbers."""
    return torch.as_strided(_filled(spec, 7, 1, 64), spec.sizes, spec.strides, spec.offset)


def _filled(spec: TensorSpec, count: int, first: int, parts: int) -> Any:
    """Return `count` numbers, repeating from `first` on; in `parts` if the type has fractions."""
    last = sum((size - 1) * stride for size, stride in zip(spec.sizes, spec.strides, strict=True))
    length = spec.offset + last + 1 if 0 not in spec.sizes else spec.offset
    if last < 0 or spec.offset < 0:
        raise NotRebuildable("its key has negative strides or offsets")
    dtype = dtype_named(spec.dtype)
    try:
        numbers = torch.arange(length, device=spec.device) % count + first
        return (numbers / parts).to(dtype) if dtype.is_floating_point else numbers.to(dtype)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise NotRebuildable(f"no {spec.dtype} tensor on {spec.device} here: {reason}") from error


def dtype_named(name: str) -> Any:
    dtype = getattr(torch, name.removeprefix("torch."), None)
    if not name.startswith("torch.") or not isinstance(dtype, torch.dtype):
        raise NotRebuildable(f"this torch has no dtype {name}")
    return dtype


@dataclass(frozen=True, slots=True)
class Operator:
    """`name` in `torch.ops`; `tensors` are its arguments in the order of the key, of which the last
    `optional` may be missing. `frozen` are inputs that are constants by default; `packs` is an
    operator that packs the weight, given as (N, K)."""

    name: str
    tensors: tuple[str, ...]
    optional: int = 0
    frozen: tuple[str, ...] = ()
    weight: str = ""
    packs: str = ""


_SCALED = ("self", "mat2", "scale_a", "scale_b")
_QUANTIZED = ("qx", "x_scale", "x_zero_point", "qw", "w_scale", "w_zero_point")

OPERATORS: Mapping[str, Operator] = {
    "linear_unary": Operator(
        "mkldnn._linear_pointwise.default",
        ("X", "W", "B"),
        1,
        ("W", "B"),
        "W",
        "mkldnn._reorder_linear_weight",
    ),
    "linear_binary": Operator(
        "mkldnn._linear_pointwise.binary",
        ("X", "other", "W", "B"),
        1,
        ("W", "B"),
        "W",
        "mkldnn._reorder_linear_weight",
    ),
    "qlinear_unary": Operator(
        "onednn.qlinear_pointwise.tensor",
        (*_QUANTIZED, "bias"),
        1,
        (*_QUANTIZED[1:], "bias"),
        "qw",
        "onednn.qlinear_prepack",
    ),
    "qlinear_binary": Operator(
        "onednn.qlinear_pointwise.binary_tensor",
        (*_QUANTIZED, "other", "bias"),
        1,
        (*_QUANTIZED[1:], "bias"),
        "qw",
        "onednn.qlinear_prepack",
    ),
    "_weight_int8pack_mm": Operator(
        "aten._weight_int8pack_mm.default", ("self", "mat2", "scales"), 0, ("mat2", "scales")
    ),
    "_weight_int4pack_mm_for_cpu": Operator(
        "aten._weight_int4pack_mm_for_cpu.default",
        ("self", "mat2", "qGroupSize", "qScaleAndZeros"),
        0,
        ("mat2", "qGroupSize", "qScaleAndZeros"),
    ),
    "int_mm": Operator("aten._int_mm.default", ("self", "mat2")),
    "scaled_mm": Operator("aten._scaled_mm.default", (*_SCALED, "bias"), 1),
    "scaled_grouped_mm": Operator("aten._scaled_grouped_mm.default", (*_SCALED, "offs"), 1),
}
"""Operators by Inductor's name of the op."""


def call(op: str, specs: Sequence[TensorSpec], given: Options) -> tuple[Any, tuple[Any, ...]]:
    """Return a module, and its arguments, that lead to `op`. Raises NotRebuildable."""
    row, values = OPERATORS[op], dict(given)
    if not len(row.tensors) - row.optional <= len(specs) <= len(row.tensors):
        raise NotRebuildable(
            f"{op} takes {counted(len(row.tensors), 'input')}, its key has {len(specs)}"
        )
    tensors = dict(zip(row.tensors, specs, strict=False))
    constants = row.frozen
    if FROZEN in values:
        constants = tuple(name for at, name in enumerate(tensors) if at in values[FROZEN])
    group = tensors.pop("qGroupSize", None)  # always a constant of the graph
    fixed: dict[str, Any] = {}
    if group is not None:
        fixed["qGroupSize"] = tensors["self"].sizes[-1] // tensors["qScaleAndZeros"].sizes[0]
    if op.startswith("scaled") and "out_dtype" not in values:
        values["out_dtype"] = (_result_type(tensors),)
    name = _V2 if "recipe_a" in values else row.name
    if _NUMBERS.keys() <= set(constants):  # the operator that takes them as numbers
        for number in _NUMBERS:
            del tensors[number]
        name, fixed = _OF_NUMBERS[name], {**fixed, **_NUMBERS}
    operator = _operator(name)
    for argument in operator._schema.arguments:
        if argument.name not in tensors and argument.name not in fixed:
            fixed[argument.name] = _value(op, argument, values.get(argument.name))
    held = {name: _made(row, name, spec) for name, spec in tensors.items() if name in constants}
    program = _Program(row, operator, fixed, tensors, held)
    rest = (name for name in tensors if name not in held)
    return program.eval(), tuple(_passed(row, name, tensors) for name in rest)


_NUMBERS = {"x_scale": 1 / 64, "x_zero_point": 3}
"""The input of a quantized layer; constants become numbers of the graph, which no kernel reads."""
_OF_NUMBERS = {
    "onednn.qlinear_pointwise.tensor": "onednn.qlinear_pointwise.default",
    "onednn.qlinear_pointwise.binary_tensor": "onednn.qlinear_pointwise.binary",
}
_V2 = "aten._scaled_mm_v2.default"
"""The operator that takes a list of scales, and a kind for each."""


class _Program(torch.nn.Module):  # type: ignore[misc]
    """`operator` with its arguments and its constant tensors."""

    def __init__(
        self,
        row: Operator,
        operator: Any,
        fixed: Mapping[str, Any],
        tensors: Mapping[str, TensorSpec],
        held: Mapping[str, Any],
    ) -> None:
        super().__init__()
        for name, tensor in held.items():
            self.register_buffer(f"held_{name}", tensor)
        self._operator, self._fixed = operator, dict(fixed)
        self._names, self._held = list(tensors), list(held)
        self._packed = row.weight if row.packs else ""
        self._pack: Any = _packing(row.packs) if row.packs else None
        # Inductor knows an offset only if the view is in the graph.
        self._views = {
            name: (spec.sizes, spec.strides, spec.offset)
            for name, spec in tensors.items()
            if spec.offset and name not in held
        }
        self._lists = [name for name in ("scale_a", "scale_b") if "recipe_a" in fixed]

    def forward(self, *given: Any) -> Any:
        values = dict(self._fixed)
        rest = list(given)
        for name in self._names:
            tensor = getattr(self, f"held_{name}") if name in self._held else rest.pop(0)
            if name in self._views:
                tensor = torch.as_strided(tensor, *self._views[name])
            if name == self._packed:
                tensor = self._pack(tensor)
            values[name] = [tensor] if name in self._lists else tensor
        return self._operator(**values)


def _passed(row: Operator, name: str, tensors: Mapping[str, TensorSpec]) -> Any:
    spec = tensors[name]
    if name == "offs":
        return ends(tensors["self"], tensors["mat2"], spec)
    return storage_of(spec) if spec.offset else _made(row, name, spec)


def _made(row: Operator, name: str, spec: TensorSpec) -> Any:
    """Return a tensor with sensible values for that argument."""
    if name == row.weight and row.packs:
        sizes = spec.sizes if row.packs.startswith("mkldnn") else spec.sizes[::-1]
        return tensor_like(TensorSpec(spec.device, spec.dtype, sizes, (sizes[1], 1), 0))
    if "zero_point" in name:
        tensor = tensor_like(spec)
        return torch.full_like(tensor, 3 if name == "x_zero_point" else 0)
    return scale_like(spec) if "scale" in name else tensor_like(spec)


def ends(a: TensorSpec, b: TensorSpec, spec: TensorSpec) -> Any:
    """Return the ends of groups of about equal size, within the tensors, which kernels index with
    them. Raises NotRebuildable."""
    if len(spec.sizes) != 1 or spec.strides != (1,) or spec.offset:
        raise NotRebuildable("a grouped product cannot be rebuilt: its ends are a view")
    total = grouped_rows(a.sizes, b.sizes)
    groups = spec.sizes[0]
    step = 16 if total >= 16 * groups else 1  # required by kernels for narrow types
    places = [total * group // groups // step * step for group in range(1, groups)]
    return torch.tensor([*places, total], device=spec.device, dtype=dtype_named(spec.dtype))


def _result_type(tensors: Mapping[str, TensorSpec]) -> str:
    """Return the type of the bias, else the usual one in models."""
    bias = tensors.get("bias")
    return "bfloat16" if bias is None else bias.dtype.removeprefix("torch.")


def _value(op: str, argument: Any, recorded: tuple[Any, ...] | None) -> Any:
    """Return an argument that is not a tensor of the key, as `recorded`. Raises NotRebuildable."""
    kind = str(argument.type)
    if recorded is None:
        if argument.has_default_value():
            return argument.default_value
        if kind.startswith("Optional"):
            return None
        raise NotRebuildable(
            f"{op} cannot be rebuilt without its `{argument.name}`; run its program once "
            "with `rocm-tui run -- CMD`, which records it"
        )
    if argument.name.endswith("dtype"):
        return dtype_named(f"torch.{recorded[0]}")
    if "List" in kind:
        return list(recorded)
    return bool(recorded[0]) if "bool" in kind else recorded[0]


def _operator(name: str) -> Any:
    """Return an operator by name. Raises NotRebuildable."""
    namespace_or_op: Any = torch.ops
    try:
        for part in name.split("."):
            namespace_or_op = getattr(namespace_or_op, part)
    except AttributeError as error:
        raise NotRebuildable(f"this torch has no {name}") from error
    if name == "mkldnn._linear_pointwise.binary":
        _register_with_compiler()
    return namespace_or_op


@functools.cache
def _register_with_compiler() -> None:
    """Register a missing result shape: torch.compile meets this operator only through a pattern,
    and otherwise never needs the shape."""
    with contextlib.suppress(RuntimeError):
        torch.library.register_fake(
            "mkldnn::_linear_pointwise.binary",
            lambda x, other, w, b, attr: x.new_empty((*x.shape[:-1], w.shape[0])),
        )


@functools.cache
def _packing(name: str) -> Any:
    """Return an operator of ours that packs a weight: torch's own are added to the graph after
    tracing, without shapes of their results."""
    ours, quantized = name.replace(".", "_"), name.startswith("onednn")
    _library().define(f"{ours}(Tensor weight) -> Tensor")
    pack = _operator(f"{name}.default")
    _library().impl(ours, lambda weight: pack(weight, None), "CPU")
    torch.library.register_fake(
        f"rocm_tui::{ours}",
        lambda weight: torch.empty_like(weight.t() if quantized else weight),
        lib=_library(),
    )
    return getattr(torch.ops.rocm_tui, ours)


@functools.cache
def _library() -> Any:
    return torch.library.Library("rocm_tui", "DEF")
