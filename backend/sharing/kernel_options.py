"""Choices of flex attention as `kernel_options`, explicit in a model's own code.

    flex_attention(q, k, v, kernel_options={"BLOCK_M": 64, "fwd_BLOCK_N": 32, ...})

Checked with torch 2.13.0: torch/nn/attention/flex_attention.py (`FlexKernelOptions`), and how each
lowering in torch/_inductor/kernel/flex/ uses them: an option overrides the tuned configuration; the
forward and decoding drop `bwd_...` and the backward `fwd_...`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from backend.errors import InputsKeyInvalid, brief
from backend.model.origin import is_own, kind_of
from backend.model.problem import Shape, parse_inputs_key
from backend.sharing.share import Inexpressible, Remark

Options = dict[str, int | bool]
"""The value of `kernel_options`."""

_COMMON = ("num_warps", "num_stages")
_FORWARD = {
    "BLOCK_M": "BLOCK_M",
    "BLOCK_N": "fwd_BLOCK_N",
    **{name: f"fwd_{name}" for name in (*_COMMON, "USE_TMA")},
}
_BLOCKS = ("BLOCK_M1", "BLOCK_N1", "BLOCK_M2", "BLOCK_N2")
KEYS: Mapping[str, Mapping[str, str]] = {
    "flex_attention": _FORWARD,
    "flex_attention_backward": {name: f"bwd_{name}" for name in (*_BLOCKS, *_COMMON, "USE_TMA")},
    "flex_decoding": {name: key for name, key in _FORWARD.items() if name != "BLOCK_M"},
}
"""The tuned parameters of each op, and the option key of each.

`BLOCK_M` has no prefix: decoding checks its rows against the plain key only, so `fwd_BLOCK_M` on a
decoding call would leave rows unmasked. Decoding derives its own from the sizes.
"""

FROM_LIST = ("matrix_instr_nonkdim", "waves_per_eu", "kpack")
"""Parameters that each configuration of Inductor's list for ROCm writes over the options."""

_OPTIONAL = ("USE_TMA",)
"""Parameters that older versions lack; Inductor's own default is False on AMD and NVIDIA."""
_OPERANDS = 3
_KINDS = {"cpp": "a C++ template, which takes no tile sizes"}


@dataclass(frozen=True, slots=True)
class FlexChoice:
    """A choice of a tuning of flex attention. `config` has its parameters as text; `rivals` those
    of the tuning's other choices, if known. `shapes` and `dtypes` are those of query, key and
    value."""

    id: str
    op: str
    hash: str
    label: str
    config: Mapping[str, str]
    rivals: tuple[Mapping[str, str], ...] = ()
    shapes: tuple[Shape, ...] = ()
    dtypes: tuple[str, ...] = ()
    ms: float | None = None


@dataclass(frozen=True, slots=True)
class FlexOptions:
    """A call of `flex_attention`: one choice, or those of its forward and backward."""

    choices: tuple[FlexChoice, ...]
    options: Options


@dataclass(frozen=True, slots=True)
class FlexOptionsExport:
    """`left_out` gives the reason for each choice that options cannot express; `notes` lists what
    the options of some `calls` leave open."""

    calls: tuple[FlexOptions, ...]
    left_out: tuple[Remark[FlexChoice], ...]
    notes: tuple[Remark[FlexChoice], ...]


def operands(inputs: str) -> tuple[tuple[Shape, ...], tuple[str, ...]]:
    """Return shapes and dtypes of query, key and value; empty for another inputs key."""
    try:
        specs = parse_inputs_key(inputs).specs[:_OPERANDS]
    except InputsKeyInvalid:
        return (), ()
    return tuple(spec.sizes for spec in specs), tuple(spec.dtype for spec in specs)


def calls_of(choices: Iterable[FlexChoice]) -> FlexOptionsExport:
    """Return the calls, each with its options. A forward and a backward form one call if only they
    have that query, key and value."""
    kept: list[tuple[FlexChoice, Options]] = []
    left_out: list[Remark[FlexChoice]] = []
    notes: list[Remark[FlexChoice]] = []
    for choice in choices:
        try:
            kept.append((choice, kernel_options_of(choice)))
        except Inexpressible as error:
            left_out.append(Remark(choice, str(error)))
            continue
        if loose := left_open(choice):
            notes.append(Remark(choice, loose))
    calls = [
        FlexOptions(
            tuple(choice for choice, _ in group), {k: v for _, o in group for k, v in o.items()}
        )
        for group in _groups(kept)
    ]
    return FlexOptionsExport(tuple(calls), tuple(left_out), tuple(notes))


Said = tuple[FlexChoice, Options]


def _groups(said: Sequence[Said]) -> list[list[Said]]:
    """Group a forward with its backward, all others alone; each in the order of `said`."""
    operands: dict[object, list[Said]] = {}
    for at, each in enumerate(said):
        choice = each[0]
        is_paired = choice.shapes and choice.op != "flex_decoding"
        operands.setdefault((choice.shapes, choice.dtypes) if is_paired else at, []).append(each)
    groups: list[list[Said]] = []
    for members in operands.values():
        pair = sorted(members, key=lambda each: each[0].op)
        if [choice.op for choice, _ in pair] == ["flex_attention", "flex_attention_backward"]:
            groups.append(pair)
        else:
            groups += [[each] for each in members]
    return groups


def kernel_options_of(choice: FlexChoice) -> Options:
    """Return the options that express a choice. Raises Inexpressible."""
    keys = KEYS.get(choice.op)
    if keys is None:
        raise Inexpressible(f"no tile sizes are options of {brief(choice.op, 40)}")
    kind = kind_of(choice.hash) if choice.hash else "triton"
    if choice.hash and is_own(choice.hash):
        raise Inexpressible("a kernel of ours; options exist only for Inductor's own templates")
    if kind != "triton":
        raise Inexpressible(_KINDS.get(kind, "not Inductor's Triton template, which has options"))
    missing = [name for name in keys if name not in choice.config and name not in _OPTIONAL]
    if len(missing) + len(_OPTIONAL) == len(keys):
        raise Inexpressible("its configuration is unknown: no session or log here records it")
    if missing:
        raise Inexpressible(f"its configuration is incomplete: no {', '.join(missing)}")
    return {
        key: _value(name, choice.config[name])
        for name, key in keys.items()
        if name in choice.config and (name not in _OPTIONAL or choice.config[name] != "False")
    }


def _value(name: str, text: str) -> int | bool:
    if name in _OPTIONAL and text in ("True", "False"):
        return text == "True"
    if name not in _OPTIONAL and text.isascii() and text.isdigit() and 0 < len(text) < 6:
        return int(text)
    raise Inexpressible(f"its configuration has {name}={brief(text, 40)}")


def left_open(choice: FlexChoice) -> str:
    """Return what the options of a choice leave open; empty if nothing.

    With `max_autotune` Inductor still offers one choice for each of these values in its list, and
    without it uses the default's.
    """
    values = {name: choice.config[name] for name in FROM_LIST if name in choice.config}
    lists = {n: {r[n] for r in choice.rivals if n in r} | {v} for n, v in values.items()}
    loose = [f"{name}={brief(values[name], 20)}" for name in values if len(lists[name]) > 1]
    if not loose:
        return ""
    return (
        f"{', '.join(loose)} cannot be an option, Inductor's own list writes over it: with "
        "max_autotune choices that differ in it alone are still timed, else the default is taken"
    )


def as_python(calls: Sequence[FlexOptions]) -> str:
    """Return the text to paste: a `kernel_options` for each call."""
    parts = []
    for call in calls:
        lines = [f"# {_title(choice)}" for choice in call.choices]
        lines += ["kernel_options = {"]
        lines += [f"    {json.dumps(key)}: {value!r}," for key, value in call.options.items()]
        parts.append("\n".join([*lines, "}"]))
    return "\n\n".join(parts) + "\n"


def _title(choice: FlexChoice) -> str:
    shapes = ", ".join("x".join(map(str, shape)) for shape in choice.shapes)
    dtypes = " ".join(dict.fromkeys(each.removeprefix("torch.") for each in choice.dtypes))
    text = f"{choice.id} {choice.op}({shapes}){f' {dtypes}' if dtypes else ''}: {choice.label}"
    text += f", {choice.ms:.4f} ms" if choice.ms is not None else ""
    return "".join(char if char.isprintable() else "?" for char in brief(text, 300))
