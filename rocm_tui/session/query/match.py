"""Which rows a filter lets through, and in which order they are.

The tree of a filter is compiled once to a function over a row. A value that is not known comes
last, whichever way; equal rows stay newest first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rocm_tui.session.model import Row
from rocm_tui.session.query.fields import BY_NAME, SEARCHED, FieldValues, QueryField, Words
from rocm_tui.session.query.grammar import Either, IsKnown, Not, OneOf, Query, Text, Within

Predicate = Callable[[Row], bool]


def predicate(query: Query, facts: FieldValues) -> Predicate:
    """Whether a row passes; what its fields say is kept in `facts`."""
    if isinstance(query, Text):
        return _text(query.text, facts)
    if isinstance(query, OneOf):
        return _words(query, facts)
    if isinstance(query, Within):
        return _number(query, facts)
    if isinstance(query, IsKnown):
        read = facts.reader(BY_NAME[query.field])
        return lambda row: read(row) not in (None, ())
    if isinstance(query, Not):
        term = predicate(query.term, facts)
        return lambda row: not term(row)
    terms = [predicate(term, facts) for term in query.terms]
    return _either(terms) if isinstance(query, Either) else _all(terms)


def _all(terms: list[Predicate]) -> Predicate:
    """Loops written out, here and below: this runs for each row at each key."""

    def passes(row: Row) -> bool:
        for term in terms:  # noqa: SIM110
            if not term(row):
                return False
        return True

    return passes


def _either(terms: list[Predicate]) -> Predicate:
    def passes(row: Row) -> bool:
        for term in terms:  # noqa: SIM110
            if term(row):
                return True
        return False

    return passes


def _text(text: str, facts: FieldValues) -> Predicate:
    read = facts.reader(SEARCHED)

    def holds(row: Row) -> bool:
        words = read(row)
        return isinstance(words, tuple) and text in words[0]

    return holds


def _words(query: OneOf, facts: FieldValues) -> Predicate:
    field = BY_NAME[query.field]
    read = facts.reader(field)
    fits: Callable[[Words], bool]
    if field.kind == "sizes":
        runs = [f"x{value.strip('x')}x" for value in query.values]
        fits = lambda words: any(run in word for run in runs for word in words)  # noqa: E731
    elif any("*" in value for value in query.values):
        patterns = [value.split("*") for value in query.values]
        fits = lambda words: any(globbed(p, word) for p in patterns for word in words)  # noqa: E731
    else:
        wanted = frozenset(query.values)
        fits = lambda words: not wanted.isdisjoint(words)  # noqa: E731

    def passes(row: Row) -> bool:
        words = read(row)
        return isinstance(words, tuple) and fits(words)

    return passes


def globbed(parts: list[str], word: str) -> bool:
    """Whether a word is these parts with anything between them. Never turns back."""
    first, *middle = parts
    if not middle:
        return word == first
    last = middle.pop()
    if not word.startswith(first):
        return False
    at = len(first)
    for part in middle:
        at = word.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return word.endswith(last) and len(word) - len(last) >= at


def _number(query: Within, facts: FieldValues) -> Predicate:
    read = facts.reader(BY_NAME[query.field])

    def passes(row: Row) -> bool:
        number = read(row)
        return isinstance(number, (int, float)) and any(r.holds(number) for r in query.ranges)

    return passes


def ordered(rows: Sequence[Row], field: QueryField, facts: FieldValues, reverse: bool) -> list[Row]:
    """`rows`, newest first, by a field: as it says, or `reverse`."""
    place = placer(field, facts)
    placed = [(at, row) for row in rows if (at := place(row)) is not None]
    unknown = [row for row in rows if place(row) is None] if len(placed) < len(rows) else []
    if field.moving and reverse:  # for an unknown age the place in the source counts
        placed.reverse()
        unknown.reverse()
    placed.sort(key=lambda pair: pair[0], reverse=field.largest != reverse)
    return [row for _, row in placed] + unknown


def placer(field: QueryField, facts: FieldValues) -> Callable[[Row], float | str | None]:
    """Return the sort key of a row by a field: its number, or its first word, or None."""
    if field.place is not None:
        return field.place
    read = facts.reader(field)
    if field.kind == "number":
        return lambda row: None if isinstance(value := read(row), tuple) else value
    return lambda row: value[0] if isinstance(value := read(row), tuple) and value else None
