"""What `lint` found, by the entry that it is about."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rocm_tui.tables.findings import LEVELS, Finding

Found = tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class Marks:
    """Findings by file and line, the worst first; those on no line are about the whole file."""

    of: Mapping[str, Mapping[int | None, Found]] = field(default_factory=dict)

    def at(self, path: str, line: int) -> Found:
        """Of this row alone."""
        return self.of.get(path, {}).get(line, ())

    def whole(self, path: str) -> Found:
        """Of all rows of a file."""
        return self.of.get(path, {}).get(None, ())

    def lines(self, path: str, word: str) -> frozenset[int] | None:
        """On which lines of a file a finding is that has this word; None for all of them."""
        found = self.of.get(path, {})
        if any(_has(one, word) for one in found.get(None, ())):
            return None
        return frozenset(
            line
            for line, ones in found.items()
            if line is not None and any(_has(one, word) for one in ones)
        )


NOTHING = Marks()


def _has(finding: Finding, word: str) -> bool:
    """`error`, or as much of a rule's name as says it; nothing, or `any`, is each of them."""
    return word in ("", "any", finding.level) or word in finding.rule


def marks_of(findings: Iterable[Finding]) -> Marks:
    """Findings of single rows (`lint` with `each`), put together by row."""
    of: dict[str, dict[int | None, list[Finding]]] = {}
    for one in findings:
        of.setdefault(one.path, {}).setdefault(one.line, []).append(one)
    return Marks(
        {
            path: {
                line: tuple(sorted(ones, key=lambda one: LEVELS.index(one.level)))
                for line, ones in lines.items()
            }
            for path, lines in of.items()
        }
    )
