"""Pins as Inductor's own lookup table: `torch._inductor.config.lookup_table.table`.

    {"<GPU>+((dtype, [sizes], [strides]), ...)[+alpha=1&beta=1]+<op>": [{"template_id": ..., ...}]}

Checked with torch 2.13.0: torch/_inductor/lookup_table/choices.py builds the keys, kernel/mm.py and
kernel/bmm.py query them, and select_algorithm.py has the template ids (`uid`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from backend.errors import InputsKeyInvalid, brief
from backend.model.origin import extern_name, is_own, kind_of
from backend.model.problem import InputsKey, TensorSpec, parse_inputs_key
from backend.sharing.share import Inexpressible, Machine, Remark, SharedPin

Value = int | bool | str | None
Config = dict[str, Value]
"""A value of the table: the template id and the template's keyword arguments."""

ATEN = {
    "mm": ("mm",),
    "int_mm": ("_int_mm",),
    "addmm": ("addmm", "bias_addmm"),
    "bmm": ("bmm",),
    "baddbmm": ("baddbmm",),
    "mm_plus_mm": ("_mm_plus_mm",),
    "scaled_mm": (),
}
"""The ops that query the table, and their ATen kernels whose only arguments are alpha and beta:
others (`mm_dtype`, `_scaled_mm`) get arguments that the table would drop."""

TRITON = {
    "triton_mm": ("mm", "addmm", "int_mm", "scaled_mm"),
    "triton_mm_persistent": ("mm", "addmm"),
    "triton_bmm": ("bmm", "baddbmm"),
    "triton_mm_plus_mm": ("mm_plus_mm",),
}
"""Triton templates whose parameters are all printed, and the ops that have them."""

NEEDED = (
    "ACC_TYPE",
    "BLOCK_K",
    "BLOCK_M",
    "BLOCK_N",
    "EVEN_K",
    "GROUP_M",
    "num_stages",
    "num_warps",
)
"""Parameters without which Inductor would use the first configuration of its own list."""

FROM_TORCH = {"ALLOW_TF32"}
"""A printed parameter that Inductor itself supplies; giving it twice is an error."""

_WITH_SCALARS = ("addmm", "baddbmm")
_SCALARS = re.compile(r"-alpha=(-?[\d.]+(?:e[+-]?\d+)?)-beta=(-?[\d.]+(?:e[+-]?\d+)?)-")
_WORD = re.compile(r"'([\w.]+)'")
_WHOLE = re.compile(r"-?\d{1,9}")
_CONSTANTS: dict[str, Value] = {"True": True, "False": False, "None": None}

_KINDS = {
    "cpp": "a C++ template",
    "cuda": "a CUTLASS kernel",
    "rocm": "a Composable Kernel",
    "subgraph": "a decomposition",
}


@dataclass(frozen=True, slots=True)
class LookupTable:
    """`entries` is the table for Inductor. `left_out` gives the reason for each pin that it cannot
    hold; `notes` limitations of some of the `pins` that it holds."""

    entries: dict[str, list[Config]] = field(default_factory=dict)
    pins: tuple[SharedPin, ...] = ()
    left_out: tuple[Remark[SharedPin], ...] = ()
    notes: tuple[Remark[SharedPin], ...] = ()


def lookup_table(pins: Iterable[SharedPin]) -> LookupTable:
    """Return the table of those `pins` that it can hold. Of two with one key the later one counts:
    a table has no precision and no version of Triton."""
    entries: dict[str, list[Config]] = {}
    kept: list[SharedPin] = []
    left_out: list[Remark[SharedPin]] = []
    notes: list[Remark[SharedPin]] = []
    for pin in sorted(pins, key=lambda pin: pin.when, reverse=True):
        try:
            keys, config = keys_of(pin), table_value(pin)
        except (Inexpressible, InputsKeyInvalid) as error:
            left_out.append(Remark(pin, str(error)))
            continue
        if any(entries.get(key, [config]) != [config] for key in keys):
            left_out.append(Remark(pin, "a later pin of the same op and inputs takes its place"))
            continue
        entries.update({key: [config] for key in keys})
        kept.append(pin)
        if pin.op == "addmm":
            others = "ATen's" if kind_of(pin.hash) else "Triton's"
            what = (
                f"torch 2.13 offers {others} choices of addmm separately, and times them against it"
            )
            notes.append(Remark(pin, what))
    return LookupTable(entries, tuple(kept), tuple(left_out), tuple(notes))


def keys_of(pin: SharedPin) -> list[str]:
    """Return the keys under which Inductor looks up the choices of a pin's kind. Raises
    Inexpressible, or InputsKeyInvalid.

    For Triton, a bias is expanded to the output first; ATen gets the original row.
    """
    inputs = parse_inputs_key(pin.inputs)
    _check_inputs(pin, inputs)
    gpu = gpu_name(pin.machine)
    if gpu is None:
        raise Inexpressible("the GPU that it was tuned on is unknown")
    tail = [f"alpha={alpha}&beta={beta}" for alpha, beta in [_scalars(pin)]] if _scaled(pin) else []
    shapes = [inputs.specs]
    if pin.op == "addmm" and not kind_of(pin.hash):
        shapes += [(bias, *inputs.specs[1:]) for bias in _rows(inputs.specs[0])]
    return ["+".join([gpu, _inputs_text(specs), *tail, pin.op]) for specs in shapes]


def table_value(pin: SharedPin) -> Config:
    """Return the table's value for a pin's choice. Raises Inexpressible."""
    if is_own(pin.hash):
        raise Inexpressible("a kernel of ours; the table has only Inductor's own templates")
    name, kind = extern_name(pin.hash), kind_of(pin.hash)
    if kind == "triton":
        if pin.op not in TRITON.get(name, ()):
            raise Inexpressible(f"{name} has parameters that no log records")
        return {"template_id": f"triton::{name.removeprefix('triton_')}", **_triton_config(pin)}
    if kind:
        raise Inexpressible(f"{_KINDS.get(kind, kind)}, a kind that Inductor does not look up")
    if name not in ATEN[pin.op]:
        raise Inexpressible(f"{brief(name, 40)} needs arguments that the table would drop")
    return {"template_id": f"aten::{name}"}


def gpu_name(machine: Machine) -> str | None:
    """Return torch's `gcnArchName`: the target on ROCm, the product's name on CUDA."""
    if machine.arch and machine.arch.startswith("gfx"):
        return machine.arch
    return machine.device if machine.cuda or (machine.arch or "").startswith("sm_") else None


def value_of(text: str) -> Value:
    """Parse a parameter as Inductor printed it. Raises Inexpressible for anything but whole
    numbers, True, False, None and plain words in quotes."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _WHOLE.fullmatch(text):
        return int(text)
    if word := _WORD.fullmatch(text):
        return word[1]
    raise Inexpressible(f"its configuration has the value {brief(text, 40)}")


def _triton_config(pin: SharedPin) -> Config:
    needed = (*NEEDED, "NUM_SMS") if "persistent" in extern_name(pin.hash) else NEEDED
    missing = [name for name in needed if name not in pin.config]
    if len(missing) == len(needed):
        raise Inexpressible("its configuration is unknown: no session or log here records it")
    if missing:
        raise Inexpressible(f"its configuration is incomplete: no {', '.join(missing)}")
    printed = {name: text for name, text in pin.config.items() if name not in FROM_TORCH}
    return {name: value_of(printed[name]) for name in sorted(printed)}


def _check_inputs(pin: SharedPin, inputs: InputsKey) -> None:
    if pin.op not in ATEN:
        raise Inexpressible(f"Inductor does not ask the table for {brief(pin.op, 40)}")
    if not inputs.specs or any(spec.device != "cuda" for spec in inputs.specs):
        raise Inexpressible("the table is for GPUs only")
    if inputs.suffix:
        raise Inexpressible(f"its inputs key ends in {brief(inputs.suffix, 40)}")
    if any(spec.offset for spec in inputs.specs):
        raise Inexpressible("an input does not begin at the start of its memory")


def _scaled(pin: SharedPin) -> bool:
    return pin.op in _WITH_SCALARS


def _scalars(pin: SharedPin) -> tuple[str, str]:
    """Return alpha and beta, which are only in the hashes of ATen's choices."""
    hashes = {pin.hash, *(name for times in pin.timings.values() for name in times)}
    scalars = {match.groups() for name in hashes if (match := _SCALARS.search(name))}
    if len(scalars) != 1:
        why = "has two values" if scalars else "is unknown: ATen was not among the choices"
        raise Inexpressible(f"its alpha or beta {why}")
    ((alpha, beta),) = scalars
    return alpha, beta


def _rows(bias: TensorSpec) -> list[TensorSpec]:
    """Return the shapes that `bias`, a matrix of equal rows, may have had before its expansion."""
    if len(bias.sizes) != 2 or bias.strides[0] != 0:
        return []
    (_, columns), (_, stride) = bias.sizes, bias.strides
    row = TensorSpec(bias.device, bias.dtype, (columns,), (stride,), 0)
    matrix = TensorSpec(bias.device, bias.dtype, (1, columns), (columns * stride, stride), 0)
    return [row, matrix]


def _inputs_text(specs: Iterable[TensorSpec]) -> str:
    parts = [f"({spec.dtype}, {list(spec.sizes)}, {list(spec.strides)})" for spec in specs]
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def as_json(table: Mapping[str, list[Config]]) -> str:
    """Return the text of the file that `json.load` turns into the table."""
    return json.dumps(table, indent=1, allow_nan=False, sort_keys=True) + "\n"
