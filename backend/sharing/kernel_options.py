"""Choices of flex attention as the `kernel_options` of the call: explicit in a model's own code.

    flex_attention(q, k, v, kernel_options={"BLOCK_M": 64, "fwd_BLOCK_N": 32, ...})

Read in torch 2.13.0: torch/nn/attention/flex_attention.py (`FlexKernelOptions`), and in
torch/_inductor/kernel/flex/ how each lowering takes them: an option goes before the tuned
configuration; the forward and decoding drop `bwd_...` and the backward `fwd_...`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
"""By op, the parameters that are tuned and the key that gives each.

`BLOCK_M` has no prefix: decoding tests its rows against the plain key alone, so `fwd_BLOCK_M` on
a call that decodes would leave rows unmasked. Decoding takes its own from the sizes."""

FROM_LIST = ("matrix_instr_nonkdim", "waves_per_eu", "kpack")
"""What each configuration of Inductor's list for ROCm writes over the options."""

_OPTIONAL = ("USE_TMA",)
"""Older versions have none; Inductor's own default is False on AMD and NVIDIA."""
_OPERANDS = 3
_KINDS = {"cpp": "a C++ template, which takes no tile sizes"}


@dataclass(frozen=True, slots=True)
class FlexChoice:
    """A choice of a tuning of flex attention. `config` is its parameters as text; `rivals` are
    those of the other choices of that tuning, where they are known. `shapes` and `dtypes` are
    those of query, key and value."""

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
    """A call of `flex_attention`: one choice of it, or its forward's and its backward's."""

    choices: tuple[FlexChoice, ...]
    options: Options


@dataclass(frozen=True, slots=True)
class FlexOptionsExport:
    """`left_out` says of each choice that no options can say, why; `notes` of some of those that
    are in `calls`, what the options leave open."""

    calls: tuple[FlexOptions, ...]
    left_out: tuple[Remark[FlexChoice], ...]
    notes: tuple[Remark[FlexChoice], ...]


def operands(inputs: str) -> tuple[tuple[Shape, ...], tuple[str, ...]]:
    """Shapes and dtypes of query, key and value; nothing of an inputs key that is none."""
    try:
        specs = parse_inputs_key(inputs).specs[:_OPERANDS]
    except InputsKeyInvalid:
        return (), ()
    return tuple(spec.sizes for spec in specs), tuple(spec.dtype for spec in specs)


def calls_of(choices: Iterable[FlexChoice]) -> FlexOptionsExport:
    """The calls, each with all that is said of it. A forward and a backward are one call where
    they alone have that query, key and value."""
    kept: list[tuple[FlexChoice, Options]] = []
    left_out: list[Remark[FlexChoice]] = []
    notes: list[Remark[FlexChoice]] = []
    for choice in choices:
        try:
            kept.append((choice, options_of(choice)))
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
    """A forward with its backward, all others alone; each where its first is in `said`."""
    operands: dict[object, list[Said]] = {}
    for at, each in enumerate(said):
        choice = each[0]
        known = choice.shapes and choice.op != "flex_decoding"
        operands.setdefault((choice.shapes, choice.dtypes) if known else at, []).append(each)
    groups: list[list[Said]] = []
    for members in operands.values():
        pair = sorted(members, key=lambda each: each[0].op)
        if [choice.op for choice, _ in pair] == ["flex_attention", "flex_attention_backward"]:
            groups.append(pair)
        else:
            groups += [[each] for each in members]
    return groups


def options_of(choice: FlexChoice) -> Options:
    """The options that say a choice. Raises Inexpressible."""
    keys = KEYS.get(choice.op)
    if keys is None:
        raise Inexpressible(f"no tile sizes are options of {brief(choice.op, 40)}")
    kind = kind_of(choice.hash) if choice.hash else "triton"
    if choice.hash and is_own(choice.hash):
        raise Inexpressible("a kernel of ours; options speak of Inductor's own templates only")
    if kind != "triton":
        raise Inexpressible(_KINDS.get(kind, "not Inductor's Triton template, which has options"))
    missing = [name for name in keys if name not in choice.config and name not in _OPTIONAL]
    if len(missing) + len(_OPTIONAL) == len(keys):
        raise Inexpressible("its configuration is not known: no session or log here tells it")
    if missing:
        raise Inexpressible(f"its configuration is not known in full: no {', '.join(missing)}")
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
    """What the options of a choice cannot say of it; nothing if they say it all.

    With `max_autotune` Inductor still offers one choice for each of these values in its list, and
    without it takes those of its default.
    """
    told = {name: choice.config[name] for name in FROM_LIST if name in choice.config}
    lists = {name: {r[name] for r in choice.rivals if name in r} | {v} for name, v in told.items()}
    loose = [f"{name}={brief(told[name], 20)}" for name in told if len(lists[name]) > 1]
    if not loose:
        return ""
    return (
        f"{', '.join(loose)} cannot be an option, Inductor's own list writes over it: with "
        "max_autotune choices that differ in it alone are still timed, else the default is taken"
    )


def as_json(found: FlexOptionsExport) -> dict[str, Any]:
    """The members of the JSON of an export."""
    return {
        "calls": [
            {
                "kernel_options": call.options,
                "tunings": [
                    {
                        "id": choice.id,
                        "op": choice.op,
                        "choice": choice.label,
                        "hash": choice.hash or None,
                        "ms": choice.ms,
                        "shapes": choice.shapes,
                        "dtypes": choice.dtypes,
                    }
                    for choice in call.choices
                ],
            }
            for call in found.calls
        ],
        "left_out": [{"id": each.subject.id, "reason": each.text} for each in found.left_out],
        "notes": [{"id": each.subject.id, "note": each.text} for each in found.notes],
    }


def as_python(calls: Sequence[FlexOptions]) -> str:
    """The text to paste: a `kernel_options` for each call."""
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
