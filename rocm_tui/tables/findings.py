"""The rules and findings of `lint`, and the findings of each row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from backend.counted import counted
from backend.tables.model import TableDevice
from rocm_tui.tables.sheet import Sheet

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
"""The worst first. A note alone fails no check."""


@dataclass(frozen=True, slots=True)
class Given:
    """The target of the checks: a device, and versions of libraries by name (`torch`,
    `hipblaslt`, `rocblas`, `hip`, `rocm`). What is not given is not checked."""

    device: TableDevice | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hit:
    """One place where a rule is broken.

    `what` is the same text for all similar hits; it follows a number of `subject`, or is a sentence
    if that is empty. `detail` is specific to this hit, `todo` is what to do. `level` is set if it
    is not the rule's.
    """

    line: int | None
    what: str
    todo: str = ""
    detail: str = ""
    subject: str = "row"
    level: Level | None = None


def sentence(line: int | None, what: str, todo: str = "", level: Level | None = None) -> Hit:
    """A hit whose text is a sentence of its own."""
    return Hit(line, what, todo, subject="", level=level)


@dataclass(frozen=True, slots=True)
class Finding:
    """Hits that are alike, of one file: `count` of them, the first on `line`. `detail` is what that
    one alone says."""

    rule: str
    level: Level
    path: str
    line: int | None
    what: str
    todo: str
    count: int = 1
    detail: str = ""

    @property
    def text(self) -> str:
        """The text with its detail."""
        return f"{self.what} ({self.detail})" if self.detail else self.what


@dataclass(frozen=True, slots=True)
class Linted:
    """`tables` with `rows` were checked for `device` (None: for none); `found` in them."""

    findings: tuple[Finding, ...]
    tables: int
    rows: int
    device: TableDevice | None

    @property
    def fails(self) -> bool:
        """Whether something is worse than a note."""
        return any(finding.level != "note" for finding in self.findings)


Check = Callable[[Sheet, Given], Iterable[Hit]]
CheckAll = Callable[[Sequence[Sheet], Given], Iterable[tuple[Sheet, Hit]]]


@dataclass(frozen=True, slots=True)
class LintRule:
    """A row of the table of rules.

    `source` is the place in the loader or tuner that the rule follows. A rule has either `check`,
    for one table, or `check_all`, for all tables together. `check` applies to tables of `tuners`
    (all if empty), with `tuned` only to tables with results.
    """

    id: str
    level: Level
    meaning: str
    source: str
    check: Check | None = None
    tuners: tuple[str, ...] = ()
    tuned: bool = False
    check_all: CheckAll | None = None

    def hits(self, sheet: Sheet, given: Given) -> Iterable[tuple[Sheet, Hit]]:
        """Check one table."""
        fits = not self.tuners or sheet.tuner in self.tuners
        if self.check is None or not fits or (self.tuned and not sheet.is_tuned):
            return ()
        return ((sheet, hit) for hit in self.check(sheet, given))


def gathered(
    rule: LintRule, hits: Iterable[tuple[Sheet, Hit]], each: bool = False
) -> Iterator[Finding]:
    """A finding for hits that are alike, in the order of their first lines; or for `each` hit."""
    if each:
        for sheet, hit in hits:
            yield _finding(rule, sheet.table.path, hit, hit.subject)
        return
    groups: dict[tuple[str, str, str, str, Level], tuple[Hit, int]] = {}
    for sheet, hit in hits:
        alike = (sheet.table.path, hit.subject, hit.what, hit.todo, hit.level or rule.level)
        first, count = groups.get(alike, (hit, 0))
        groups[alike] = (min(first, hit, key=lambda one: one.line or 0), count + 1)
    for (path, *_), (first, count) in groups.items():
        subject = first.subject and counted(count, first.subject)
        yield _finding(rule, path, first, subject, count)


def _finding(rule: LintRule, path: str, first: Hit, subject: str, count: int = 1) -> Finding:
    what = f"{subject} {first.what}".strip()
    detail = f"first: {first.detail}" if first.detail and count > 1 else first.detail
    level = first.level or rule.level
    return Finding(rule.id, level, path, first.line, what, first.todo, count, detail)


Found = tuple[Finding, ...]
WHOLE = 0
"""The line of a finding about a whole file."""


@dataclass(frozen=True, slots=True)
class RowFindings:
    """The findings of single rows, by file and line; those of a line the worst first."""

    by_file: Mapping[str, Mapping[int, Found]] = field(default_factory=dict)

    def at(self, path: str, line: int) -> Found:
        """Return the findings of this row alone."""
        return self.by_file.get(path, {}).get(line, ())

    def whole(self, path: str) -> Found:
        """Return the findings about the whole file."""
        return self.at(path, WHOLE)

    def lines(self, path: str, word: str) -> frozenset[int] | None:
        """Return the lines of a file with a finding that has this word; None means all lines."""
        by_line = self.by_file.get(path, {})
        lines = {
            line for line, those in by_line.items() if any(_has(finding, word) for finding in those)
        }
        return None if WHOLE in lines else frozenset(lines)

    def levels(self) -> Counter[Level]:
        """Count the findings of each level."""
        by_line = (findings for lines in self.by_file.values() for findings in lines.values())
        return Counter(finding.level for findings in by_line for finding in findings)

    def without(self, paths: Collection[str]) -> RowFindings:
        """Return the findings of the other files."""
        return RowFindings({p: lines for p, lines in self.by_file.items() if p not in paths})


NOTHING = RowFindings()


def _has(finding: Finding, word: str) -> bool:
    """Whether `word` is a level or part of a rule's name; nothing, or `any`, fits every finding."""
    return word in ("", "any", finding.level) or word in finding.rule


def findings_by_row(findings: Iterable[Finding]) -> RowFindings:
    """Arrange findings of single rows (`lint` with `each`) by file and line."""
    by_file: dict[str, dict[int, list[Finding]]] = {}
    for finding in findings:
        lines = by_file.setdefault(finding.path, {})
        lines.setdefault(finding.line or WHOLE, []).append(finding)
    return RowFindings(
        {
            path: {
                line: tuple(sorted(those, key=lambda one: LEVELS.index(one.level)))
                for line, those in lines.items()
            }
            for path, lines in by_file.items()
        }
    )
