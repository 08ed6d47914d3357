"""What `lint` finds: a rule, a finding of it, and how many like it become one line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from backend.counted import counted
from backend.tables.model import Device
from rocm_tui.tables.sheet import Sheet

Level = Literal["error", "warning", "note"]
LEVELS: tuple[Level, ...] = ("error", "warning", "note")
"""The worst first. A note alone fails no check."""


@dataclass(frozen=True, slots=True)
class Given:
    """What the tables are checked for: a device, and versions by the names of the libraries
    (`torch`, `hipblaslt`, `rocblas`, `hip`, `rocm`). What is not given is not checked."""

    device: Device | None = None
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hit:
    """One place where a rule is broken. `what` is the same text for all that are alike; it stands
    behind a number of `subject`, or, where that is empty, is a sentence. `detail` is of this one,
    `todo` what to do. `level` where it is another than the rule's."""

    line: int | None
    what: str
    todo: str = ""
    detail: str = ""
    subject: str = "row"
    level: Level | None = None


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
        """What, with its detail."""
        return f"{self.what} ({self.detail})" if self.detail else self.what


@dataclass(frozen=True, slots=True)
class Linted:
    """`tables` with `rows` were checked for `device` (None: for none); `found` in them."""

    found: tuple[Finding, ...]
    tables: int
    rows: int
    device: Device | None

    @property
    def fails(self) -> bool:
        """Whether something is worse than a note."""
        return any(finding.level != "note" for finding in self.found)


Check = Callable[[Sheet, Given], Iterable[Hit]]
CheckAll = Callable[[Sequence[Sheet], Given], Iterable[tuple[Sheet, Hit]]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A line of the table of rules. `source` is where the loader, or the maker, says so. Of `check`
    and `check_all` one is there: for a table by itself, for all of them together."""

    id: str
    level: Level
    meaning: str
    source: str
    check: Check | None = None
    check_all: CheckAll | None = None


def gathered(
    rule: Rule, hits: Iterable[tuple[Sheet, Hit]], each: bool = False
) -> Iterator[Finding]:
    """A finding for hits that are alike, in the order of their first lines; or for `each` hit."""
    if each:
        for sheet, hit in hits:
            yield _told(rule, sheet.table.path, hit, hit.subject)
        return
    groups: dict[tuple[str, str, str, str, Level], tuple[Hit, int]] = {}
    for sheet, hit in hits:
        alike = (sheet.table.path, hit.subject, hit.what, hit.todo, hit.level or rule.level)
        first, count = groups.get(alike, (hit, 0))
        groups[alike] = (min(first, hit, key=lambda one: one.line or 0), count + 1)
    for (path, *_), (first, count) in groups.items():
        subject = first.subject and counted(count, first.subject)
        yield _told(rule, path, first, subject, count)


def _told(rule: Rule, path: str, first: Hit, subject: str, count: int = 1) -> Finding:
    what = f"{subject} {first.what}".strip()
    detail = f"first: {first.detail}" if first.detail and count > 1 else first.detail
    level = first.level or rule.level
    return Finding(rule.id, level, path, first.line, what, first.todo, count, detail)
