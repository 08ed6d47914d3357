"""One row of an AUTOTUNE table: a choice, its time, and its share of the best one's speed."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

MS = " ms "
_MAX_TRIES = 8


class Row(NamedTuple):
    """`name ms percent description`; `percent` is the best time over this one, None if unknown.

    A tuple, because a log has more of these than of anything else. `name` is empty in a version
    that prints a choice's configuration and no name.
    """

    name: str
    ms: float
    percent: float | None
    description: str

    @property
    def said(self) -> str:
        """What tells it from the other rows of its table."""
        return self.name or self.description


def find_row(text: str) -> tuple[int, Row] | None:
    """The row that a clean line holds, and the column where it begins."""
    at = text.find(MS)
    for _ in range(_MAX_TRIES):
        if at < 0:
            return None
        row = _row_at(text, at)
        if row:
            return row
        at = text.find(MS, at + 1)
    return None


_NAME = re.compile(r"[A-Za-z_][\w.:<>-]*\Z")
_NUMBER = re.compile(r"(?:\d{1,15}(?:\.\d{1,15})?|inf|nan)\Z")
# Early in 2024 a row began with what `str` makes of a choice.
_EXTERN = re.compile(r"ExternKernelCaller\((?:extern_kernels\.)?([A-Za-z_][\w.]*)\)\Z")
_TRITON = "TritonTemplateCaller("
_SETTING = re.compile(r"[A-Za-z_]\w*=")
_LAST_SETTING = re.compile(r"(?<!\w)[A-Za-z_]\w*=[^ ]*\Z")  # not tried again within a word


def _row_at(text: str, at: int) -> tuple[int, Row] | None:
    """The row whose ` ms ` stands at `at`."""
    share, _, description = text[at + len(MS) :].lstrip(" ").partition(" ")
    if not share.endswith("%"):
        share = share.rstrip('",')  # the last string of a list in JSON
    if share.endswith("%") and _NUMBER.match(share[:-1]):
        percent = float(share[:-1])
    elif text.startswith("<DIVIDED BY ZERO ERROR>", at + len(MS)):
        percent, description = math.nan, ""
    else:
        return None
    before = text[:at].rstrip(" ")
    value_at = before.rfind(" ") + 1
    if value_at == 0 or not _NUMBER.match(before[value_at:]):
        return None
    found = _choice(before[: value_at - 1].rstrip(" "))
    if found is None:
        return None
    name_at, name, config = found
    said = ", ".join(filter(None, (config, description.strip(" "))))
    known = None if math.isnan(percent) else percent
    return name_at, Row(name, float(before[value_at:]), known, said)


def _choice(before: str) -> tuple[int, str, str] | None:
    """The choice that `before` ends with: its column, its name, and its configuration if it stands
    in place of the name."""
    at = before.rfind(" ") + 1
    # `[rank0]:mm`, `"mm`: what is glued to an unindented name is no part of it.
    at = max(at, before.rfind("]:") + 2 if "]:" in before else 0)
    at = max(at, before.rfind('"') + 1, before.rfind("#") + 1)
    name = before[at:]
    if _NAME.match(name):
        return at, name, ""
    extern = _EXTERN.match(name)
    if extern:
        return at, extern[1], ""
    if before.endswith(")") and _TRITON in before:
        at = before.rfind(_TRITON)
        config = before[at + len(_TRITON) : -1].partition(", ")[2]
        return (at, "", config) if _SETTING.match(config) else None
    return _settings(before)


def _settings(before: str) -> tuple[int, str, str] | None:
    """`A='x', B=2` at the end of `before`, behind whatever prefix."""
    start = end = len(before)
    while True:
        comma = before.rfind(", ", 0, end)
        item = before[comma + 2 if comma >= 0 else 0 : end]
        if comma >= 0 and _SETTING.match(item):
            start = end = comma
            continue
        last = _LAST_SETTING.search(item[item.rfind(" ") + 1 :])
        if last is None:
            return None if start == len(before) else (start + 2, "", before[start + 2 :])
        at = end - len(last[0])
        return at, "", before[at:]
