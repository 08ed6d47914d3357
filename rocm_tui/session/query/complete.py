"""What may follow while a filter is typed: fields, values that rows have, saved filters."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from backend.counted import counted
from rocm_tui.session.model import Row
from rocm_tui.session.query.fields import BY_NAME, FIELDS, FieldValues, QueryField

_LAST = re.compile(r"""(?:\A|[\s(|!-])([^\s()|!"'-][^\s()|"']*)\Z""")
"""The word at the end, without what turns it round."""
_CONDITION = re.compile(r"([A-Za-z_]+)(:|<=|>=|<|>|=)(.*)\Z")
_OFFERED = ("op", "dtype", "state", "by", "is", "verdict")
"""Fields whose values are offered before a field is named. Each has few."""
_AMBIGUOUS = re.compile(r"[\s,()|*]")
"""Makes quotes necessary."""
_MOST = 40
ORDERS = {"save": "keep this filter under a name", "forget": "a saved filter"}
"""Words at the end that are no part of a filter; a name follows them."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A way to go on: the whole filter then, its new part, and a word on that."""

    text: str
    word: str
    about: str


class Completion:
    """Completes filters over some rows; what their fields say is counted once."""

    def __init__(self, rows: Sequence[Row], facts: FieldValues, saved: Mapping[str, str]) -> None:
        self._rows = rows
        self._facts = facts
        self._saved = saved
        self._values: dict[str, tuple[Counter[str], Counter[str]]] = {}

    def offers(self, text: str) -> list[Suggestion]:
        """The best first; none where the last word is complete, or nothing can follow it."""
        return list(self._offers(text))[:_MOST]

    def _offers(self, text: str) -> Iterator[Suggestion]:
        if not text.strip():
            yield from (
                Suggestion(f"@{name}", f"@{name}", what) for name, what in self._saved.items()
            )
            yield from (_of_field("", field) for field in FIELDS)
            return
        word, before = last_word(text)
        if not word:
            return
        if before.split()[-1:] == ["forget"]:
            yield from self._of_saved(before, "", word)
            return
        if word.startswith("@"):
            yield from self._of_saved(before, "@", word[1:])
            return
        match = _CONDITION.match(word)
        if match is None:
            yield from self._of_word(before, word.lower())
            return
        name, sign, value = match.groups()
        field = BY_NAME.get(name.lower())
        if field is None:
            return
        if field.kind == "number" and sign not in ":=":
            if not value:
                yield Suggestion(text, field.example, field.about)
            return
        done, comma, part = value.rpartition(",")
        yield from self._of_value(f"{before}{name}{sign}{done}{comma}", field, part.lower())

    def _of_saved(self, before: str, mark: str, part: str) -> Iterator[Suggestion]:
        for name, what in self._saved.items():
            if name.startswith(part) and name != part:
                yield Suggestion(f"{before}{mark}{name}", f"{mark}{name}", what)

    def _of_word(self, before: str, word: str) -> Iterator[Suggestion]:
        """Fields that begin so, then the values that do."""
        for field in FIELDS:
            if any(name.startswith(word) for name in (field.name, *field.also)):
                yield _of_field(before, field)
        for name in _OFFERED:
            for offer in self._of_value(f"{before}{name}:", BY_NAME[name], word):
                yield Suggestion(offer.text, f"{name}:{offer.word}", offer.about)
        for order, about in ORDERS.items():
            if order.startswith(word) and (order == "forget" or before.strip()):
                yield Suggestion(f"{before}{order} ", f"{order} NAME", about)

    def _of_value(self, before: str, field: QueryField, part: str) -> Iterator[Suggestion]:
        """What rows are called begins so; else other names of theirs."""
        for values in self.values(field):
            matching = [pair for pair in values.most_common() if pair[0].startswith(part)]
            for value, count in matching:
                if value != part:
                    written = f'"{value}"' if _AMBIGUOUS.search(value) else value
                    about = counted(count, "tuning")
                    yield Suggestion(before + written, value, about)
            if matching:
                return

    def values(self, field: QueryField) -> tuple[Counter[str], Counter[str]]:
        """How many rows have each value of a field: what they are called, and all names."""
        cached = self._values.get(field.name)
        if cached is None:
            read = self._facts.reader(field)
            words = [_shown(field, read(row)) for row in self._rows]
            all_ = Counter(word for of_row in words for word in of_row)
            first = Counter(of_row[0] for of_row in words if of_row)
            whole = field.each or field.kind == "sizes"
            cached = self._values[field.name] = (all_ if whole else first), all_
        return cached


def last_word(text: str) -> tuple[str, str]:
    """The word at the end, which may be half a one, and the text before it."""
    match = _LAST.search(text)
    return (match[1], text[: match.start(1)]) if match else ("", text)


def _of_field(before: str, field: QueryField) -> Suggestion:
    sign = field.example[len(field.name)]
    return Suggestion(f"{before}{field.name}{sign}", f"{field.name}{sign}", field.about)


def _shown(field: QueryField, value: object) -> tuple[str, ...]:
    """The words that it offers of a row."""
    if isinstance(value, tuple):
        if field.kind == "sizes":
            return tuple({size for run in value for size in run.strip("x").split("x")})
        return value
    if isinstance(value, (int, float)) and field.name in ("rank", "choices", "failed"):
        return (f"{value:g}",)
    return ()
