"""Every term, column and state with the sentence that explains it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rocm_tui.widgets.tuning_cells import ABOUT, COLUMNS


@dataclass(frozen=True, slots=True)
class Entry:
    """A word as the screen shows it, as commands print it, and what it means."""

    title: str
    name: str
    about: str


@dataclass(frozen=True, slots=True)
class Group:
    """Entries that belong together."""

    title: str
    entries: tuple[Entry, ...]


STANDINGS = {
    "fastest": "its whole interval lies before the others'",
    "tied": "the difference is smaller than what matters, and that is known",
    "slower": "its whole interval lies behind the best",
    "unclear": "more rounds or a quieter machine may tell",
    "apart": "under the same key, but no program is known that offers it beside these",
}


def groups() -> tuple[Group, ...]:
    """All of it, in the order in which a reader meets it."""
    columns = tuple(Entry(c.title, c.title.lower(), ABOUT[c.key]) for c in COLUMNS)
    return (Group("Tunings", columns), _words("Verdicts", STANDINGS.items()))


def _words(title: str, words: Iterable[tuple[str, str]]) -> Group:
    return Group(title, tuple(Entry(word, word, about) for word, about in words))


def markdown() -> Iterator[str]:
    """The lines of docs/glossary.md below its first paragraph."""
    for group in groups():
        yield f"## {group.title}"
        yield ""
        yield "| word | meaning |"
        yield "|---|---|"
        for entry in group.entries:
            yield f"| `{entry.name}` | {entry.about} |"
        yield ""
