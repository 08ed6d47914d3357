"""What `lint` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from backend.counted import counted
from rocm_tui.tables.findings import LEVELS, Finding, Level, Linted
from rocm_tui.tables.lint import RULES

MARKS: dict[Level, tuple[str, str]] = {
    "error": ("✗", "bad"),
    "warning": ("!", "warn"),
    "note": ("·", "dim"),
}
"""Sign and style of a level on the screen."""


def text(linted: Linted) -> str:
    """A line a finding, and one of all: `FILE:LINE: LEVEL: WHAT; WHAT TO DO [RULE]`."""
    return "\n".join((*map(line, linted.found), _summary(linted)))


def line(finding: Finding) -> str:
    where = finding.path if finding.line is None else f"{finding.path}:{finding.line}"
    todo = f"; {finding.todo}" if finding.todo else ""
    return f"{where}: {finding.level}: {finding.text}{todo} [{finding.rule}]"


def counts_text(counts: Mapping[Level, int]) -> str:
    """`1 error, 3 notes`."""
    said = [counted(counts[level], level) for level in LEVELS if counts.get(level)]
    return ", ".join(said) or "nothing found"


def _summary(linted: Linted) -> str:
    said = counts_text(Counter(one.level for one in linted.found))
    checked = f"{counted(linted.tables, 'table')}, {counted(linted.rows, 'row')}"
    device = f"for {linted.device}" if linted.device else "for no device (name one with --device)"
    return f"{checked}, checked {device}: {said}"


def lint_json(linted: Linted) -> dict[str, Any]:
    return {
        "device": str(linted.device) if linted.device else None,
        "tables": linted.tables,
        "rows": linted.rows,
        "findings": [
            {
                "rule": one.rule,
                "level": one.level,
                "file": one.path,
                "line": one.line,
                "count": one.count,
                "what": one.text,
                "todo": one.todo,
            }
            for one in linted.found
        ],
    }


def rules_text() -> str:
    """Each rule: how bad, what it means, where that is from."""
    return "\n".join(
        f"{rule.id:<19} {rule.level:<8} {rule.meaning}"
        + (f"\n{'':<28} {rule.source}" if rule.source else "")
        for rule in RULES
    )
