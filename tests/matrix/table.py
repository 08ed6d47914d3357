"""The answers as a table of a document: one feature a row, one version a column."""

from __future__ import annotations

from collections.abc import Mapping

BEGIN, END = "<!-- made by `make matrix` -->", "<!-- end -->"

Answers = Mapping[str, str]
"""By feature: why it does not work; nothing if it does."""


def table(found: Mapping[str, Answers]) -> str:
    """Markdown: `yes`, or `no` with the number of a footnote that has the reason.

    A feature that a version was not asked for is a dash.
    """
    features = list(dict.fromkeys(name for answers in found.values() for name in answers))
    notes: list[str] = []
    rows = []
    for name in features:
        cells = [_cell(version, answers.get(name), notes) for version, answers in found.items()]
        rows.append(_row([name, *cells]))
    head = [_row(["", *found]), _row(["---", *("---" for _ in found)])]
    lines = [*head, *rows]
    if notes:
        lines += ["", *(f"{n}. {note}" for n, note in enumerate(notes, 1))]
    return "\n".join(lines)


def _cell(version: str, reason: str | None, notes: list[str]) -> str:
    if reason is None:
        return "-"
    if not reason:
        return "yes"
    note = f"{version}: {_escaped(reason)}"
    if note not in notes:
        notes.append(note)
    return f"**no** ({notes.index(note) + 1})"


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def put(document: str, text: str) -> str:
    """`document` with `text` between its two marks. Raises ValueError where it has none."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the document has no {BEGIN} with {END} behind it")
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def columns(document: str) -> list[str]:
    """The versions in a document's table."""
    inside = document.partition(BEGIN)[2].partition(END)[0]
    first = next((line for line in inside.splitlines() if line.startswith("|")), "")
    return [cell.strip() for cell in first.strip("| ").split("|") if cell.strip()]
