"""Inductor's JSON logs of one kind of op: `TORCHINDUCTOR_MM_LOGGING_FILE` and its conv, flex kin.

A JSON list that is rewritten in place for each op. An entry is one of
    {"(M, K, N)": [{"type": "triton", "time": ms, ...} | null, ...], "kernel_type": op}
    {"input_shape": "[..]", "weight_shape": "[..]", "choices": [...], "kernel_type": op}
    {"query_shape": "[..]", "key_shape": .., "value_shape": .., "choices": [...], "kernel_type": ..}
    {"invoke": "(M, K, N)"}
The last names an op that was compiled, not tuned. What (M, K, N) is made of: see `Tuning.dims`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from backend.model.choice import Choice, sort_choices
from backend.model.problem import Shape
from backend.model.tuning import Tuning
from rocm_tui.harmless import clean
from rocm_tui.ingest.formats.autotune_lines import all_known, parse_numbers
from rocm_tui.ingest.formats.reader import DOCUMENTS, Complaints, Format, NotReadable, timed_choice
from rocm_tui.ingest.records import Record, Seen, uid_of

UNKNOWN_OP = "?"
"""The op of an entry that does not name it, as before torch 2.9."""

_FACTORS = ("mm", "addmm")
"""Ops whose (M, K, N) are the sizes of two matrices: (M, K) and (K, N)."""
_FLEX = {
    "forward": "flex_attention",
    "backward": "flex_attention_backward",
    "decode": "flex_decoding",
}
_FLEX_SHAPES = ("query_shape", "key_shape", "value_shape")
_SAID_ELSEWHERE = {
    "time", "kernel_type", "B", "Hq", "Hkv", "seq_len_q", "seq_len_kv", "qk_head_dim", "v_head_dim",
}  # fmt: skip
MAX_PROBLEMS = 20


def parse(data: bytes, source: str) -> list[Record]:
    """All tunings of a log. Raises NotReadable for half a file or another document."""
    records: list[Record] = []
    complaints = Complaints(source, MAX_PROBLEMS)
    for n, entry in enumerate(_entries(data), start=1):
        if isinstance(entry, dict) and "invoke" in entry:
            continue
        try:
            tuning = _tuning(entry, source) if isinstance(entry, dict) else None
        except _BadValue as error:
            records += complaints.about(f"entry {n} of an MM log: {error}")
            continue
        if tuning:
            records.append(Seen(uid_of(source, n), tuning))
        else:
            records += complaints.about(f"entry {n} is no tuning of an MM log")
    return records


class _BadValue(Exception):
    """A choice whose time is none."""


def _entries(data: bytes) -> list[Any]:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise NotReadable(f"not a complete JSON list ({clean(str(error))[:80]})") from error
    if not isinstance(document, list):
        raise NotReadable("holds no JSON list of tunings")
    return document


def _tuning(entry: dict[str, Any], source: str) -> Tuning | None:
    op = clean(str(entry.get("kernel_type", UNKNOWN_OP)))
    if "choices" in entry:
        return _listed(entry, op, source)
    for key, choices in entry.items():
        if key.startswith("(") and isinstance(choices, list):
            dims = parse_numbers(key[1:-1]) or ()
            return _made(op, _factors(op, dims), choices, source, dims)
    return None


def _listed(entry: dict[str, Any], op: str, source: str) -> Tuning | None:
    """An entry of a conv or a flex attention log."""
    choices = entry["choices"]
    if not isinstance(choices, list):
        return None
    if "query_shape" in entry:
        shapes = _shapes(entry.get(name) for name in _FLEX_SHAPES)
        return _made(_FLEX.get(op, op), shapes, choices, source)
    if "input_shape" in entry:
        shapes = _shapes((entry["input_shape"], entry.get("weight_shape")))
        return _made(op, shapes, choices, source)
    return None


def _made(
    op: str, shapes: tuple[Shape, ...], choices: list[Any], source: str, dims: Shape = ()
) -> Tuning:
    return Tuning(
        op=op,
        shapes=shapes,
        choices=sort_choices(list(_choices(choices))),
        num_choices=len(choices),
        sources=(source,),
        dims=dims,
    )


def _factors(op: str, dims: Shape) -> tuple[Shape, ...]:
    if op not in _FACTORS or len(dims) != 3:
        return ()
    m, k, n = dims
    return ((m, k), (k, n))


def _shapes(texts: Iterable[Any]) -> tuple[Shape, ...]:
    """`"[1, 3, 8]"` each; empty if one of them is not known."""
    shapes = [parse_numbers(t.strip("[]()")) if isinstance(t, str) else None for t in texts]
    return all_known(shapes) or ()


def _choices(items: list[Any]) -> Iterator[Choice]:
    """`null` is a choice that the log says nothing of. Raises _BadValue."""
    for item in items:
        if item is None:
            continue
        time = item.get("time") if isinstance(item, dict) else None
        if not isinstance(time, (int, float)) or isinstance(time, bool) or time < 0:
            raise _BadValue(f"a choice has no time: {clean(json.dumps(item))[:100]}")
        try:
            ms = float(time)
        except OverflowError:
            ms = math.inf
        config = {k: v for k, v in item.items() if k not in _SAID_ELSEWHERE}
        if config.get("type") == "triton":
            del config["type"]
        yield timed_choice(ms, description=clean(", ".join(f"{k}={v}" for k, v in config.items())))


FORMAT = Format(
    "mm log",
    begins=re.compile(
        rb'\[\s*\{\s*"(?:\(|invoke"|input_shape"|weight_shape"|query_shape"|kernel_type")'
    ),
    suffixes=DOCUMENTS,
    document=parse,
)
