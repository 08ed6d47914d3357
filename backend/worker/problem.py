"""What a job compiles: an op as a program again, from a key of the autotune cache or from shapes,
and the settings that it is compiled with.

Torch's key says device, dtype, sizes, strides and offset of what reaches the kernel. What it does
not say is recorded by `run`, or is in the hash of ATen's choice, which a job names or the cache
has. Whether the program made here leads Inductor to the very same key is for the caller to check.
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
    TMA,
    TOLD,
    Options,
    agree,
    numbers,
    of_hash,
    of_text,
    options,
    text_of,
)
from backend.model.problem import Shape, TensorSpec, TuningKey, parse_inputs_key
from backend.wire.jobs import BadJob, TuneJob
from backend.worker.flex_numbers import flex_program
from backend.worker.rebuilt import (
    OPERATORS,
    NotRebuildable,
    Rebuilt,
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
"""Without that name an op cannot be built again, and what it stands for."""


def options_of(key: TuningKey, hashes: Iterable[str] = (), recorded: str = "") -> Options:
    """Return the options of a key's op: those in `hashes`, with what was `recorded`, as `text_of`
    writes it, where they agree; else the recorded ones, else those of the hashes in the autotune
    cache. None for an op whose key says all.
    Raises NotRebuildable."""
    if key.op not in TOLD:
        return ()
    known = of_text(recorded)
    name, what = NEEDED.get(key.op, ("", ""))
    found = _of(key.op, hashes) or ({known} if dict(known).get(name) or not name else set())
    found = found - {()} or (_of(key.op, _cached(key)) if key.op in ATEN else set())
    if len(found) > 1 and known:  # the cache has the choices of all that share the key
        found = {one for one in found if agree(one, known)} or found
    if len(found) == 1:
        (one,) = found
        return options(dict(known) | dict(one)) if agree(one, known) else one
    if found:
        texts = " and ".join(sorted(map(text_of, found)))
        raise NotRebuildable(
            f"several {key.op} ({texts}) share this key: which one is not known; name choices of "
            "one"
        )
    if not name:
        return known
    raise NotRebuildable(
        f"{key.op} cannot be rebuilt: nothing tells its {what}; run its program once with "
        "`rocm-tui run -- CMD`, which records them"
    )


def _of(op: str, hashes: Iterable[str]) -> set[Options]:
    return {of_hash(op, hash) for hash in hashes} - {()}


def _cached(key: TuningKey) -> Iterable[str]:
    files, _ = read_caches(Layout(cache_dir()))
    return {hash for file in files for hash in file.entries.get(key, ())}


_CONVOLUTION_SETTINGS = {"layout_optimization": False}
"""The inputs stay in the memory format of the key; what a program's other convolutions made of it
is not known."""

_BACKWARD = {
    "max_autotune_conv_bwd_weight_backends": "ATEN,TRITON",
    "max_autotune_conv_bwd_input_backends": "ATEN,TRITON",
}
"""Without Triton's choices Inductor tunes no backward pass."""


def convolution_settings(op: str, device: str) -> Mapping[str, object]:
    """Those of Inductor that a program with one of `CONVOLUTIONS` is compiled with. On a CPU
    only Inductor's Triton, for which there is Triton's interpreter, has choices for a backward
    pass."""
    if op not in CONVOLUTION_RESULTS:
        return _CONVOLUTION_SETTINGS
    return (
        _CONVOLUTION_SETTINGS | _BACKWARD | ({"cpu_backend": "triton"} if device == "cpu" else {})
    )


def convolution_specs(
    op: str, specs: Sequence[TensorSpec], given: Options
) -> tuple[TensorSpec, ...]:
    """The inputs of the program: in the backward pass also what its result is the gradient of, of
    which nothing but the sizes and the memory format count."""
    if op not in CONVOLUTION_RESULTS:
        return tuple(specs)
    one = specs[0]
    sizes = numbers(given)[CONVOLUTION_RESULTS[op]]
    return (*specs, TensorSpec(one.device, one.dtype, sizes, _strides(sizes, one), 0))


def _strides(sizes: Shape, like: TensorSpec) -> Shape:
    """With the dimensions in the order in which they lie in `like`."""
    order = sorted(range(len(sizes)), key=lambda at: (like.strides[at], like.sizes[at], -at))
    strides, step = [0] * len(sizes), 1
    for at in order:
        strides[at] = step
        step *= sizes[at]
    return tuple(strides)


def convolution_function(op: str, given: Options) -> Any:
    """The convolution of an image, a weight and maybe a bias; or a part of its backward pass, of
    the key's tensors and what the result is the gradient of."""
    values: dict[str, Any] = {name: list(found) for name, found in given}
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


def rebuild_key(key: TuningKey, hashes: Sequence[str], recorded: str) -> Rebuilt:
    """Return a program of a key's op, given the `hashes` of some of its choices and what was
    `recorded` beside its inputs. Raises NotRebuildable."""
    if is_flex(key.op):
        return flex_program(key.op, recorded)
    return rebuild(key.op, specs_of(key), options_of(key, hashes, recorded))


def rebuild(op: str, specs: Sequence[TensorSpec], given: Options = ()) -> Rebuilt:
    """The op `op` on inputs like `specs`, with the options `given`. Raises NotRebuildable."""
    if op in CONVOLUTIONS:
        return _convolution(op, specs, given)
    if op in OPERATORS:
        module, arguments = call(op, specs, given)
        freezing = bool(OPERATORS[op].frozen) or FROZEN in dict(given)
        return Rebuilt(module, arguments, freezing, _settings(given))
    row = _KNOWN.get(op)
    if row is None:
        known = ", ".join(dict.fromkeys((*_KNOWN, *CONVOLUTIONS, *OPERATORS)))
        raise NotRebuildable(f"{op} cannot be rebuilt from its inputs; these can: {known}")
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


def _convolution(op: str, specs: Sequence[TensorSpec], given: Options) -> Rebuilt:
    if {name for name, _ in given} != set(TOLD[op]) or len(specs) not in (2, 3):
        raise NotRebuildable(
            f"{op} cannot be rebuilt: {counted(len(specs), 'input')}, with "
            f"{text_of(given) or 'a stride and a padding that nothing tells'}"
        )
    settings = convolution_settings(op, specs[0].device)
    if unknown := [name for name in settings if torch_api.setting(name) is None]:
        raise NotRebuildable(
            f"this torch ({torch.__version__}) does not tune {op}: it has no {unknown[0]}"
        )
    program = _plain(convolution_function(op, given), convolution_specs(op, specs, given))
    return replace(program, settings=settings)


def _settings(given: Options) -> Mapping[str, object]:
    """Of Inductor's, without which it does not offer what a program was offered."""
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

    arguments = (storage_of(spec) if spec.offset else tensor_like(spec) for spec in specs)
    return Rebuilt(program, tuple(arguments), freezing=False)


def _linear(op: str, row: Op, specs: Sequence[TensorSpec]) -> Rebuilt:
    """Its weight is frozen into the graph and packed by MKL."""
    if not row.takes(len(specs)):
        raise NotRebuildable(f"{op} with {counted(len(specs), 'input')} is not known")
    given = dict(zip(row.inputs, specs, strict=False))
    weight, bias = given["b"], given.get("bias")
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


def template_choices(name: str, choices: Any, input_nodes: Any, layout: Any) -> list[Any]:
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


def rebuild_asked(recipe: Recipe, recorded: str) -> Rebuilt:
    """Its op on its inputs, and what was `recorded` besides. Raises NotRebuildable."""
    if is_flex(recipe.op):
        return flex_program(recipe.op, recorded)
    return rebuild(recipe.op, recipe.specs, options_of(recipe.key, (), recorded))


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
    """Return the strides of a tensor whose rows lie one behind the other."""
    return tuple(torch.empty(shape, device="meta").stride())
