"""The program of a job: an op rebuilt from a key of the autotune cache or from shapes, and its
compile settings.

Torch's key has device, dtype, sizes, strides and offset of the kernel's inputs. Further arguments
are recorded by `run`, or are in the hash of ATen's choice, which is in the job or in the cache. The
caller checks whether the program leads Inductor to the very same key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from backend.cache.autotune import read_caches
from backend.counted import counted
from backend.disk.layout import Layout, cache_dir
from backend.errors import InputsKeyInvalid
from backend.inductor.hooks.templates import offer, schedule
from backend.inductor.torch import tuning as torch_api
from backend.model.ops import OPS, Op, is_flex
from backend.model.options import (
    ATEN,
    CONVOLUTION,
    CONVOLUTION_RESULTS,
    CONVOLUTIONS,
    FROZEN,
    OPTION_NAMES,
    TMA,
    Options,
    convolution_numbers,
    options,
    options_agree,
    options_of_hash,
    options_of_text,
    text_of_options,
)
from backend.model.problem import Shape, TensorSpec, TuningKey, parse_inputs_key
from backend.wire.jobs import JobInvalid, TuneJob
from backend.worker.flex_numbers import flex_program
from backend.worker.rebuilt import (
    OPERATORS,
    NotRebuildable,
    RebuiltProgram,
    call,
    ends,
    storage_of,
    tensor_like,
)

NEEDED: Mapping[str, tuple[str, str]] = {
    "convolution": ("stride", "stride and padding"),
    "convolution_bwd_weight": ("w_shape", "stride, padding and sizes of the weight"),
    "convolution_bwd_input": ("x_shape", "stride, padding and sizes of the image"),
    "linear_unary": ("attr", "activation"),
    "linear_binary": ("attr", "second operation"),
    "qlinear_unary": ("output_dtype", "activation, result type and scales"),
    "qlinear_binary": ("output_dtype", "activation, result type and scales"),
}
"""The option without which an op cannot be rebuilt, and its meaning."""


def options_of_key(key: TuningKey, hashes: Iterable[str] = (), recorded: str = "") -> Options:
    """Return the options of a key's op: those in `hashes`, combined with the `recorded` ones in the
    form of `text_of`, if they agree; else the recorded ones, else those of the hashes in the
    autotune cache. Empty for an op whose key is complete. Raises NotRebuildable."""
    if key.op not in OPTION_NAMES:
        return ()
    from_record = options_of_text(recorded)
    name, what = NEEDED.get(key.op, ("", ""))
    candidates = _of(key.op, hashes) or (
        {from_record} if dict(from_record).get(name) or not name else set()
    )
    candidates = candidates - {()} or (_of(key.op, _cached(key)) if key.op in ATEN else set())
    if (
        len(candidates) > 1 and from_record
    ):  # the cache has the choices of all ops that share the key
        candidates = {each for each in candidates if options_agree(each, from_record)} or candidates
    if len(candidates) == 1:
        (each,) = candidates
        return options(dict(from_record) | dict(each)) if options_agree(each, from_record) else each
    if candidates:
        texts = " and ".join(sorted(map(text_of_options, candidates)))
        raise NotRebuildable(f"several {key.op} ({texts}) share this key; name choices of one")
    if not name:
        return from_record
    raise NotRebuildable(
        f"{key.op} cannot be rebuilt without its {what}; run its program once with "
        "`rocm-tui run -- CMD`, which records them"
    )


def _of(op: str, hashes: Iterable[str]) -> set[Options]:
    return {options_of_hash(op, hash) for hash in hashes} - {()}


def _cached(key: TuningKey) -> Iterable[str]:
    files, _ = read_caches(Layout(cache_dir()))
    return {hash for file in files for hash in file.entries.get(key, ())}


_CONVOLUTION_SETTINGS = {"layout_optimization": False}
"""Inputs keep the key's memory format; effects of other convolutions on it are unknown."""

_BACKWARD = {
    "max_autotune_conv_bwd_weight_backends": "ATEN,TRITON",
    "max_autotune_conv_bwd_input_backends": "ATEN,TRITON",
}
"""Without Triton's choices Inductor tunes no backward pass."""


def convolution_settings(op: str, device: str) -> Mapping[str, object]:
    """Return Inductor's settings for a program with one of `CONVOLUTIONS`. On a CPU only Inductor's
    Triton, through the interpreter, has choices for a backward pass."""
    if op not in CONVOLUTION_RESULTS:
        return _CONVOLUTION_SETTINGS
    return (
        _CONVOLUTION_SETTINGS | _BACKWARD | ({"cpu_backend": "triton"} if device == "cpu" else {})
    )


def convolution_specs(
    op: str, specs: Sequence[TensorSpec], given: Options
) -> tuple[TensorSpec, ...]:
    """Return the inputs of the program: in the backward pass also the tensor that the result is the
    gradient of, of which only sizes and memory format matter."""
    if op not in CONVOLUTION_RESULTS:
        return tuple(specs)
    first = specs[0]
    sizes = convolution_numbers(given)[CONVOLUTION_RESULTS[op]]
    return (*specs, TensorSpec(first.device, first.dtype, sizes, _strides(sizes, first), 0))


def _strides(sizes: Shape, like: TensorSpec) -> Shape:
    """Return strides with the dimensions in the memory order of `like`."""
    order = sorted(range(len(sizes)), key=lambda at: (like.strides[at], like.sizes[at], -at))
    strides, step = [0] * len(sizes), 1
    for at in order:
        strides[at] = step
        step *= sizes[at]
    return tuple(strides)


def convolution_function(op: str, given: Options) -> Any:
    """Return the convolution of an image, a weight and maybe a bias; or a part of its backward
    pass, of the key's tensors and the tensor that the result is the gradient of."""
    values: dict[str, Any] = {name: list(members) for name, members in given}
    values |= {"transposed": any(values["transposed"]), "groups": values["groups"][0]}
    options = [values[name] for name in CONVOLUTION]
    backward = torch.ops.aten.convolution_backward

    def function(x: Any, weight: Any, bias: Any = None) -> Any:
        return torch.convolution(x, weight, bias, *options)

    def of_weight(x: Any, grad: Any, weight: Any) -> Any:
        return backward(grad, x, weight, None, *options, [False, True, False])[1]

    def of_input(grad: Any, weight: Any, x: Any) -> Any:
        return backward(grad, x, weight, None, *options, [True, False, False])[0]

    if op == "convolution":
        return function
    return of_weight if op == "convolution_bwd_weight" else of_input


def rebuild_key(key: TuningKey, hashes: Sequence[str], recorded: str) -> RebuiltProgram:
    """Return a program of a key's op, given the `hashes` of some of its choices and the `recorded`
    options. Raises NotRebuildable."""
    if is_flex(key.op):
        return flex_program(key.op, recorded)
    return rebuild(key.op, specs_of(key), options_of_key(key, hashes, recorded))


def rebuild(op: str, specs: Sequence[TensorSpec], given: Options = ()) -> RebuiltProgram:
    """Return a program of `op` on inputs like `specs`, with options. Raises NotRebuildable."""
    if op in CONVOLUTIONS:
        return _convolution(op, specs, given)
    if op in OPERATORS:
        module, arguments = call(op, specs, given)
        freezing = bool(OPERATORS[op].frozen) or FROZEN in dict(given)
        return RebuiltProgram(module, arguments, freezing, _settings(given))
    row = _KNOWN.get(op)
    if row is None:
        supported = ", ".join(dict.fromkeys((*_KNOWN, *CONVOLUTIONS, *OPERATORS)))
        raise NotRebuildable(f"{op} cannot be rebuilt from its inputs; these can: {supported}")
    if row.function is None:
        return _linear(op, row, specs)
    if not row.takes(len(specs)):
        raise NotRebuildable(
            f"{op} takes {counted(len(row.inputs), 'input')}, its key has {len(specs)}"
        )
    function = _COMPOSED.get(op) or getattr(torch, row.function)
    program = _plain(function, [_operand(op, i, spec) for i, spec in enumerate(specs)])
    program = replace(program, settings=_settings(given))
    if row.inputs[-1] != "ends" or len(specs) < len(row.inputs):
        return program
    return replace(program, arguments=(*program.arguments[:-1], ends(*specs)))


def _convolution(op: str, specs: Sequence[TensorSpec], given: Options) -> RebuiltProgram:
    if {name for name, _ in given} != set(OPTION_NAMES[op]) or len(specs) not in (2, 3):
        raise NotRebuildable(
            f"{op} cannot be rebuilt: {counted(len(specs), 'input')}, with "
            f"{text_of_options(given) or 'an unknown stride and padding'}"
        )
    settings = convolution_settings(op, specs[0].device)
    if unknown := [name for name in settings if torch_api.setting(name) is None]:
        raise NotRebuildable(
            f"this torch ({torch.__version__}) does not tune {op}: it has no {unknown[0]}"
        )
    program = _plain(convolution_function(op, given), convolution_specs(op, specs, given))
    return replace(program, settings=settings)


def _settings(given: Options) -> Mapping[str, object]:
    """Return Inductor's settings that are needed to offer the program's choices."""
    return {"triton.enable_persistent_tma_matmul": True} if TMA in dict(given) else {}


def _mm_plus_mm(a: Any, b: Any, c: Any, d: Any) -> Any:
    return torch.mm(a, b) + torch.mm(c, d)


def _grouped_mm(a: Any, b: Any, ends: Any = None) -> Any:
    return torch.ops.aten._grouped_mm(a, b, ends)


_COMPOSED: Mapping[str, Callable[..., Any]] = {
    "mm_plus_mm": _mm_plus_mm,
    "grouped_mm": _grouped_mm,
}
_KNOWN = {name: row for name, row in OPS.items() if row.buildable}


def _operand(op: str, position: int, spec: TensorSpec) -> TensorSpec:
    """Return the program's argument; addmm broadcasts a bias of one dimension itself."""
    if op == "addmm" and position == 0 and spec.strides[:1] == (0,):
        return TensorSpec(spec.device, spec.dtype, spec.sizes[1:], spec.strides[1:], spec.offset)
    return spec


def _plain(function: Callable[..., Any], specs: Sequence[TensorSpec]) -> RebuiltProgram:
    """Build the program of a plain function, with the views in the graph, since Inductor only knows
    offsets of such views."""
    views = [(spec.sizes, spec.strides, spec.offset) if spec.offset else None for spec in specs]

    def program(*bases: Any) -> Any:
        inputs = [
            base if view is None else torch.as_strided(base, *view)
            for base, view in zip(bases, views, strict=True)
        ]
        return function(*inputs)

    arguments = (storage_of(spec) if spec.offset else tensor_like(spec) for spec in specs)
    return RebuiltProgram(program, tuple(arguments), freezing=False)


def _linear(op: str, row: Op, specs: Sequence[TensorSpec]) -> RebuiltProgram:
    """Build a linear layer, whose weight is frozen into the graph and packed by MKL."""
    if not row.takes(len(specs)):
        raise NotRebuildable(f"{op} with {counted(len(specs), 'input')} is not known")
    given = dict(zip(row.inputs, specs, strict=False))
    weight, bias = given["b"], given.get("bias")
    module = _Linear(tensor_like(weight), None if bias is None else tensor_like(bias))
    return RebuiltProgram(module.eval(), (tensor_like(given["a"]),), freezing=True)


class _Linear(torch.nn.Module):  # type: ignore[misc]
    """`torch.nn.Linear` with a weight of any strides."""

    def __init__(self, weight: Any, bias: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight, requires_grad=False)
        self.bias = None if bias is None else torch.nn.Parameter(bias, requires_grad=False)

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.linear(x, self.weight, self.bias)


_THREADS = torch.get_num_threads()
"""The default thread count in this environment."""


def settings_of(mode: int) -> Mapping[str, bool]:
    """Return Inductor's settings in the mode with this index. Raises JobInvalid."""
    if not 0 <= mode < len(torch_api.MODES):
        raise JobInvalid(f"the job's `mode` goes from 0 to {len(torch_api.MODES) - 1}")
    return torch_api.MODES[mode]


def set_threads(threads: int | None) -> None:
    """Compute with `threads` threads, by default the worker's initial number, whatever the last job
    set: on a CPU the hash of a C++ choice depends on it."""
    torch.set_num_threads(_THREADS if threads is None else threads)


def specs_of(key: TuningKey) -> tuple[TensorSpec, ...]:
    """Return the inputs to rebuild. Raises NotRebuildable."""
    try:
        parsed = parse_inputs_key(key.inputs)
    except InputsKeyInvalid as error:
        raise NotRebuildable(f"cannot rebuild it: {error}") from error
    _check_suffix(parsed.suffix, torch_api.key_suffix("cpu"))
    return parsed.specs


def _check_suffix(suffix: str, usual: str) -> None:
    """Raise NotRebuildable unless this torch may write such a key; `usual` is its suffix on a CPU.
    On a GPU the same name may have another value, which depends on the mode."""
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
    """Set the precision of float32 products to that of `key`. Raises NotRebuildable.

    The key of a compiled graph distinguishes a precision that was set from the same default, so
    nothing is set unnecessarily.
    """
    if torch_api.precision() == key.precision:
        return
    try:
        torch_api.set_precision(key.precision)
    except (RuntimeError, ValueError) as error:
        raise NotRebuildable(f"this torch cannot set the precision {key.precision}") from error


def template_choices(name: str, choices: Any, input_nodes: Any, layout: Any) -> list[Any]:
    """Return the choices of our templates, and add their kernels to the device's scheduling."""
    schedule()
    return offer(name, choices, input_nodes, layout)


@dataclass(frozen=True, slots=True)
class Recipe:
    """`specs` are the inputs to rebuild; `inputs` is the required key, if any. Without it any key
    of that op with those sizes is accepted."""

    op: str
    specs: tuple[TensorSpec, ...]
    precision: str
    inputs: str | None = None

    @property
    def key(self) -> TuningKey:
        return TuningKey(self.op, self.inputs or "", self.precision)

    def is_met_by(self, key: TuningKey) -> bool:
        """Return whether `key`, which Inductor tunes, is the intended one."""
        if self.inputs is not None:
            return key == self.key
        if key.op != self.op:
            return False
        try:
            tuned = parse_inputs_key(key.inputs).specs
        except InputsKeyInvalid:
            return False
        if len(tuned) != len(self.specs):
            return False
        row = OPS.get(self.op)
        packed = row.place("copy") if row and "copy" in row.inputs else None
        # its size is up to the library
        return all(
            at == packed or _alike(spec, given)
            for at, (spec, given) in enumerate(zip(tuned, self.specs, strict=True))
        )


def _alike(tuned: TensorSpec, given: TensorSpec) -> bool:
    """Return whether the specs match; a bias of one dimension is broadcast over the rows."""
    return tuned.sizes[-len(given.sizes) :] == given.sizes and tuned.device == given.device


def rebuild_asked(recipe: Recipe, recorded: str) -> RebuiltProgram:
    """Return a program of the recipe, with the `recorded` options. Raises NotRebuildable."""
    if is_flex(recipe.op):
        return flex_program(recipe.op, recorded)
    return rebuild(recipe.op, recipe.specs, options_of_key(recipe.key, (), recorded))


def asked_problem(job: TuneJob) -> Recipe:
    """Return the recipe of a job; the default device is the GPU, else the CPU. Raises JobInvalid;
    NotRebuildable for an inputs key that cannot be parsed."""
    if job.inputs is not None:
        if job.precision is None:
            raise JobInvalid("the job needs the text `precision`")
        key = TuningKey(job.op, job.inputs, job.precision)
        return Recipe(job.op, specs_of(key), key.precision, key.inputs)
    dtypes = job.dtypes * len(job.shapes) if len(job.dtypes) == 1 else job.dtypes
    strides = job.strides or tuple(map(contiguous, job.shapes))
    if not job.shapes or not len(dtypes) == len(strides) == len(job.shapes):
        raise JobInvalid("the job needs `shapes`, and as many `dtypes` and `strides`")
    device = job.device or ("cuda" if torch.cuda.is_available() else "cpu")
    specs = tuple(
        TensorSpec(device, dtype, shape, stride, 0)
        for shape, stride, dtype in zip(job.shapes, strides, dtypes, strict=True)
    )
    row = OPS.get(job.op)
    if (
        row and "copy" in row.inputs and len(specs) == 2
    ):  # its key has the weight twice: packed, and original
        specs = (*specs, specs[1])
    return Recipe(job.op, specs, job.precision or torch_api.precision())


def contiguous(shape: Shape) -> Shape:
    """Return the strides of a tensor with contiguous rows."""
    return tuple(torch.empty(shape, device="meta").stride())
