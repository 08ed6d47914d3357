"""What a job compiles: an op as a program again, from a key of the autotune cache or from shapes,
and the settings that it is compiled with.

Torch's key says device, dtype, sizes, strides and offset of what reaches the kernel. Whether the
program made here leads Inductor to the very same key is for the caller to check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from backend.counted import counted
from backend.errors import InputsKeyInvalid
from backend.inductor.hooks.templates import offer, schedule
from backend.inductor.torch import tuning as torch_api
from backend.model.convolution import Options
from backend.model.ops import OPS, Op
from backend.model.problem import Shape, TensorSpec, TuningKey, parse_inputs_key
from backend.wire.jobs import BadJob, TuneJob
from backend.worker import convolution


class NotRebuildable(Exception):
    """No program is known that leads to this op with these inputs; one line says why."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Call `function(*arguments)` under torch.compile, with `freezing` set as it says, and
    Inductor's other `settings`."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    freezing: bool
    settings: Mapping[str, object] = field(default_factory=dict)


def rebuild_key(key: TuningKey, hashes: Sequence[str] = (), told: str = "") -> Rebuilt:
    """The op of a key, of which the choices `hashes` are known, and maybe what it was `told` beside
    its inputs. Raises NotRebuildable."""
    return rebuild(key.op, specs_of(key), options_of(key, hashes, told))


def options_of(key: TuningKey, hashes: Sequence[str] = (), told: str = "") -> Options:
    """What the op of a key was given beside its inputs. Raises NotRebuildable."""
    try:
        return convolution.options_of(key, hashes, told)
    except convolution.OptionsUnknown as error:
        raise NotRebuildable(str(error)) from error


def rebuild(op: str, specs: Sequence[TensorSpec], given: Options = ()) -> Rebuilt:
    """The op `op` on inputs like `specs`, a convolution with the options `given`. Raises
    NotRebuildable."""
    if op == "convolution":
        if not given or not OPS[op].takes(len(specs)):
            raise NotRebuildable(
                f"convolution cannot be rebuilt: {counted(len(specs), 'input')}, with "
                f"{convolution.text_of(given) or 'a stride and a padding that nothing tells'}"
            )
        program = _plain(convolution.function_of(given), specs)
        return replace(program, settings=convolution.SETTINGS)
    row = _KNOWN.get(op)
    if row is None:
        known = ", ".join(_KNOWN)
        raise NotRebuildable(f"{op} cannot be rebuilt from its inputs; these can: {known}")
    if row.function is None:
        return _linear(op, row, specs)
    if not row.takes(len(specs)):
        raise NotRebuildable(
            f"{op} takes {counted(len(row.inputs), 'input')}, its key has {len(specs)}"
        )
    function = _COMPOSED.get(op) or getattr(torch, row.function)
    program = _plain(function, [_operand(op, i, spec) for i, spec in enumerate(specs)])
    if row.inputs[-1] != "ends" or len(specs) < len(row.inputs):
        return program
    return replace(program, arguments=(*program.arguments[:-1], _ends(specs)))


def _ends(specs: Sequence[TensorSpec]) -> Any:
    """Where groups of about the same size end, within the tensors: kernels read there."""
    a, b, ends = specs
    if len(ends.sizes) != 1 or ends.strides != (1,) or ends.offset:
        raise NotRebuildable("grouped_mm cannot be rebuilt: its ends are a view")
    total = b.sizes[-1] if len(a.sizes) == 3 else a.sizes[-1 if len(b.sizes) == 2 else 0]
    groups = ends.sizes[0]
    places = [total * (group + 1) // groups for group in range(groups)]
    return torch.tensor(places, device=ends.device, dtype=_dtype(ends.dtype))


def _scaled_mm(a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None) -> Any:
    """The key tells no dtype of the result: that of the bias, else what models mostly take."""
    dtype = torch.bfloat16 if bias is None else bias.dtype
    return torch._scaled_mm(a, b, scale_a, scale_b, bias=bias, out_dtype=dtype)


def _mm_plus_mm(a: Any, b: Any, c: Any, d: Any) -> Any:
    return torch.mm(a, b) + torch.mm(c, d)


def _grouped_mm(a: Any, b: Any, ends: Any = None) -> Any:
    return torch._grouped_mm(a, b, ends)


_COMPOSED: Mapping[str, Callable[..., Any]] = {
    "scaled_mm": _scaled_mm,
    "mm_plus_mm": _mm_plus_mm,
    "grouped_mm": _grouped_mm,
}
_KNOWN = {name: row for name, row in OPS.items() if row.buildable}


def _operand(op: str, position: int, spec: TensorSpec) -> TensorSpec:
    """What the program hands over; addmm spreads a bias of one dimension over the rows itself."""
    if op == "addmm" and position == 0 and spec.strides[:1] == (0,):
        return TensorSpec(spec.device, spec.dtype, spec.sizes[1:], spec.strides[1:], spec.offset)
    return spec


def _plain(function: Callable[..., Any], specs: Sequence[TensorSpec]) -> Rebuilt:
    """Inductor knows an offset only where the graph itself makes the view."""
    views = [(spec.sizes, spec.strides, spec.offset) if spec.offset else None for spec in specs]

    def program(*bases: Any) -> Any:
        inputs = [
            base if view is None else torch.as_strided(base, *view)
            for base, view in zip(bases, views, strict=True)
        ]
        return function(*inputs)

    arguments = (_storage(spec) if spec.offset else tensor_like(spec) for spec in specs)
    return Rebuilt(program, tuple(arguments), freezing=False)


def _linear(op: str, row: Op, specs: Sequence[TensorSpec]) -> Rebuilt:
    """Its weight is frozen into the graph and packed by MKL or oneDNN."""
    if not row.takes(len(specs)):
        raise NotRebuildable(f"{op} with {counted(len(specs), 'input')} is not known")
    given = dict(zip(row.inputs, specs, strict=False))
    weight, bias = given["b"], given.get("bias")
    if row.packed:
        rows, columns = weight.sizes
        weight = TensorSpec(weight.device, weight.dtype, (rows, columns), (columns, 1), 0)
    module = _Linear(tensor_like(weight), None if bias is None else tensor_like(bias))
    return Rebuilt(module.eval(), (tensor_like(given["a"]),), freezing=True)


class _Linear(torch.nn.Module):  # type: ignore[misc]
    """`torch.nn.Linear` with a weight of any strides."""

    def __init__(self, weight: Any, bias: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight, requires_grad=False)
        self.bias = None if bias is None else torch.nn.Parameter(bias, requires_grad=False)

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.linear(x, self.weight, self.bias)


def tensor_like(spec: TensorSpec) -> Any:
    """A tensor of that device, dtype, sizes, strides and offset, always with the same values.

    Frozen weights are part of the graph cache's key: equal ones find the same graph again.
    """
    return torch.as_strided(_storage(spec), spec.sizes, spec.strides, spec.offset)


def _storage(spec: TensorSpec) -> Any:
    """One dimension, as long as the view of `spec` reaches."""
    last = sum((size - 1) * stride for size, stride in zip(spec.sizes, spec.strides, strict=True))
    length = spec.offset + last + 1 if 0 not in spec.sizes else spec.offset
    if last < 0 or spec.offset < 0:
        raise NotRebuildable("its key has negative strides or offsets")
    dtype = _dtype(spec.dtype)
    try:
        numbers = torch.arange(length, device=spec.device) % 17 - 8
        return (numbers / 8).to(dtype) if dtype.is_floating_point else numbers.to(dtype)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise NotRebuildable(f"no {spec.dtype} tensor on {spec.device} here: {reason}") from error


def _dtype(name: str) -> Any:
    dtype = getattr(torch, name.removeprefix("torch."), None)
    if not name.startswith("torch.") or not isinstance(dtype, torch.dtype):
        raise NotRebuildable(f"this torch has no dtype {name}")
    return dtype


_THREADS = torch.get_num_threads()
"""What a program in this environment has by itself."""


def settings_of(mode: int) -> Mapping[str, bool]:
    """Inductor's settings in the mode with this index. Raises BadJob."""
    if not 0 <= mode < len(torch_api.MODES):
        raise BadJob(f"the job's `mode` goes from 0 to {len(torch_api.MODES) - 1}")
    return torch_api.MODES[mode]


def set_threads(threads: int | None) -> None:
    """Compute with so many threads, else with as many as the worker began with, whatever the last
    job set: on a CPU the hash of a C++ choice depends on their number."""
    torch.set_num_threads(_THREADS if threads is None else threads)


def specs_of(key: TuningKey) -> tuple[TensorSpec, ...]:
    """The inputs to rebuild. Raises NotRebuildable."""
    try:
        parsed = parse_inputs_key(key.inputs)
    except InputsKeyInvalid as error:
        raise NotRebuildable(f"cannot rebuild it: {error}") from error
    _check_suffix(parsed.suffix, torch_api.key_suffix("cpu"))
    return parsed.specs


def _check_suffix(suffix: str, usual: str) -> None:
    """Raises NotRebuildable unless this torch may write such a key; `usual` is what it writes on a
    CPU. On a GPU the same name may have another value, which depends on the mode."""
    name = usual.partition("=")[0]
    if suffix == usual or (name and suffix.startswith(f"{name}=")):
        return
    if suffix.startswith("_"):
        raise NotRebuildable(f"its inputs key ends in {suffix}, which is not rebuilt")
    given, written = (
        f"ends in {text}" if text else "ends with the list" for text in (suffix, usual)
    )
    raise NotRebuildable(
        f"its inputs key {given}, and one of this torch ({torch.__version__}) {written}: tuned by "
        "another version"
    )


def set_precision(key: TuningKey) -> None:
    """Let float32 products have the precision of `key`. Raises NotRebuildable.

    A precision that was set is another than the same one by default, as far as the key of a
    compiled graph is concerned, so nothing is set in vain.
    """
    if torch_api.precision() == key.precision:
        return
    try:
        torch_api.set_precision(key.precision)
    except (RuntimeError, ValueError) as error:
        raise NotRebuildable(f"this torch cannot set the precision {key.precision}") from error


def ours(name: str, choices: Any, input_nodes: Any, layout: Any) -> list[Any]:
    """The choices of our templates; the device's scheduling then knows their kernels."""
    schedule()
    return offer(name, choices, input_nodes, layout)


@dataclass(frozen=True, slots=True)
class Recipe:
    """`specs` are the inputs to rebuild; `inputs` is the key that must come out, where one was
    asked for. Without it any key of that op with those sizes is the one."""

    op: str
    specs: tuple[TensorSpec, ...]
    precision: str
    inputs: str | None = None

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs or "", self.precision)

    def is_met_by(self, key: TuningKey) -> bool:
        """Whether `key`, which Inductor asks about, is what was meant."""
        if self.inputs is not None:
            return key == self.key
        if key.op != self.op:
            return False
        try:
            asked = parse_inputs_key(key.inputs).specs
        except InputsKeyInvalid:
            return False
        if len(asked) != len(self.specs):
            return False
        row = OPS.get(self.op)
        packed = row.place("copy") if row and "copy" in row.inputs else None
        # how large that is, the library decides
        return all(
            at == packed or _alike(spec, given)
            for at, (spec, given) in enumerate(zip(asked, self.specs, strict=True))
        )


def _alike(asked: TensorSpec, given: TensorSpec) -> bool:
    """A bias of one dimension is spread over the rows."""
    return asked.sizes[-len(given.sizes) :] == given.sizes and asked.device == given.device


def asked_problem(job: TuneJob) -> Recipe:
    """What a job asks for; without a device on the GPU, else the CPU.

    Raises BadJob; NotRebuildable for an inputs key that cannot be read.
    """
    if job.inputs is not None:
        if job.precision is None:
            raise BadJob("the job needs the text `precision`")
        key = TuningKey(job.op, job.inputs, job.precision)
        return Recipe(job.op, specs_of(key), key.precision, key.inputs)
    dtypes = job.dtypes * len(job.shapes) if len(job.dtypes) == 1 else job.dtypes
    strides = job.strides or tuple(map(contiguous, job.shapes))
    if not job.shapes or not len(dtypes) == len(strides) == len(job.shapes):
        raise BadJob("the job needs `shapes`, and as many `dtypes` and `strides`")
    device = job.device or ("cuda" if torch.cuda.is_available() else "cpu")
    specs = tuple(
        TensorSpec(device, dtype, shape, stride, 0)
        for shape, stride, dtype in zip(job.shapes, strides, dtypes, strict=True)
    )
    row = OPS.get(job.op)
    if (
        row and "copy" in row.inputs and len(specs) == 2
    ):  # its key has the weight twice: packed, and as is
        specs = (*specs, specs[1])
    return Recipe(job.op, specs, job.precision or torch_api.precision())


def contiguous(shape: Shape) -> Shape:
    """The strides of a tensor whose rows lie one behind the other."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
