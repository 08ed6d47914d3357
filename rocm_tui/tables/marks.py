"""What `lint` found, by the entry that it is about.

A hundred thousand findings say a few things, each with a word of its own. So a thing is kept once,
and a finding as three numbers and that word.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate

from rocm_tui.tables.findings import LEVELS, Finding, Level

Found = tuple[Finding, ...]
WHOLE = 0
"""The line of what is about a whole file."""


@dataclass(frozen=True, slots=True)
class FileMarks:
    """Those of one file by line, on each the worst first. Of finding n `kinds[n]` is what it says,
    and what it alone says the text between `ends[n - 1]` and `ends[n]` of `details`."""

    lines: array[int]
    kinds: array[int]
    ends: array[int]
    details: bytes

    @classmethod
    def of(cls, lines: Iterable[int], kinds: Iterable[int], details: Iterable[str]) -> FileMarks:
        texts = [detail.encode("utf-8", "replace") for detail in details]
        ends = array("I", accumulate(map(len, texts)))
        return cls(array("I", lines), array("I", kinds), ends, b"".join(texts))

    def detail(self, at: int) -> str:
        start = self.ends[at - 1] if at else 0
        return self.details[start : self.ends[at]].decode("utf-8", "replace")

    def texts(self) -> list[str]:
        return [self.detail(at) for at in range(len(self.lines))]


@dataclass(frozen=True, slots=True)
class Marks:
    """Findings by file and line. The `kinds` are of no file and line."""

    kinds: tuple[Finding, ...] = ()
    of: Mapping[str, FileMarks] = field(default_factory=dict)

    def at(self, path: str, line: int) -> Found:
        """Of this row alone, the worst first."""
        marks = self.of.get(path)
        if marks is None:
            return ()
        start, end = bisect_left(marks.lines, line), bisect_right(marks.lines, line)
        return tuple(
            replace(
                self.kinds[marks.kinds[at]],
                path=path,
                line=None if line == WHOLE else line,
                detail=marks.detail(at),
            )
            for at in range(start, end)
        )

    def whole(self, path: str) -> Found:
        """Of all rows of a file."""
        return self.at(path, WHOLE)

    def lines(self, path: str, word: str) -> frozenset[int] | None:
        """On which lines of a file a finding is that has this word; None for all of them."""
        marks = self.of.get(path)
        if marks is None:
            return frozenset()
        kinds = {at for at, kind in enumerate(self.kinds) if _has(kind, word)}
        found = {line for line, kind in zip(marks.lines, marks.kinds, strict=True) if kind in kinds}
        return None if WHOLE in found else frozenset(found)

    def levels(self) -> Counter[Level]:
        """How many there are of each."""
        counts = Counter[int]()
        for marks in self.of.values():
            counts.update(marks.kinds)
        levels = Counter[Level]()
        for kind, count in counts.items():
            levels[self.kinds[kind].level] += count
        return levels

    def without(self, paths: Collection[str]) -> Marks:
        """What is known of the other files."""
        left = {path: marks for path, marks in self.of.items() if path not in paths}
        return Marks(self.kinds, left) if left else NOTHING


NOTHING = Marks()


def _has(finding: Finding, word: str) -> bool:
    """`error`, or as much of a rule's name as says it; nothing, or `any`, is each of them."""
    return word in ("", "any", finding.level) or word in finding.rule


def marks_of(findings: Iterable[Finding]) -> Marks:
    """Findings of single rows (`lint` with `each`), put together by row. None is kept."""
    kinds: dict[Finding, int] = {}
    found: dict[str, tuple[array[int], array[int], list[str]]] = {}
    for one in findings:
        kind = replace(one, path="", line=None, detail="")
        lines, said, details = found.setdefault(one.path, (array("I"), array("I"), []))
        lines.append(WHOLE if one.line is None else one.line)
        said.append(kinds.setdefault(kind, len(kinds)))
        details.append(one.detail)
    all_kinds = tuple(kinds)
    badness = [LEVELS.index(kind.level) for kind in all_kinds]
    return Marks(all_kinds, {path: _sorted(*told, badness) for path, told in found.items()})


def _sorted(
    lines: array[int], kinds: array[int], details: list[str], badness: list[int]
) -> FileMarks:
    order = sorted(range(len(lines)), key=lambda at: (lines[at], badness[kinds[at]]))
    return FileMarks.of(
        (lines[at] for at in order),
        (kinds[at] for at in order),
        (details[at] for at in order),
    )
