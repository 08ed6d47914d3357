"""The grammar of a filter: from text to a tree of what a row has to be.

    filter := part (OR part)*        OR is also written |
    part   := term+                  all of them
    term   := ! term | - term | ( filter ) | field | @name | word | "words"
    field  := NAME : VALUES | NAME < NUMBER | <= | > | >=
    VALUES := VALUE (, VALUE)*       one of them; words may hold *, numbers LOW..HIGH
              none  nothing is known     *  something is

What cannot be read is a fault with its place. `read` leaves it out and goes on, as somebody types;
`parse` raises it. Time and depth are bounded: one pass, no pattern that turns back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

from rocm_tui.errors import QueryError
from rocm_tui.meant import nearest
from rocm_tui.session.query.fields import BY_NAME, QueryField


@dataclass(frozen=True, slots=True)
class Text:
    """A row shows this, in small letters."""

    text: str


@dataclass(frozen=True, slots=True)
class OneOf:
    """A word of this field is one of these, which may hold `*`."""

    field: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """From `low` to `high`; both count, unless `open`."""

    low: float = -inf
    high: float = inf
    open: bool = False

    def holds(self, number: float) -> bool:
        if self.open:
            return self.low < number < self.high
        return self.low <= number <= self.high


@dataclass(frozen=True, slots=True)
class Within:
    """The number of this field is in one of these."""

    field: str
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class IsKnown:
    """Something is known of this field."""

    field: str


@dataclass(frozen=True, slots=True)
class Not:
    term: Query


@dataclass(frozen=True, slots=True)
class All:
    """Without terms: every row."""

    terms: tuple[Query, ...] = ()


@dataclass(frozen=True, slots=True)
class Either:
    terms: tuple[Query, ...]


Query = Text | OneOf | Within | IsKnown | Not | All | Either
EVERYTHING = All()


LONGEST = 2000
"""Characters of a filter."""
DEEPEST = 20
"""Parentheses within each other, saved filters included."""
MOST_NAMED = 50
"""Saved filters that one filter may name, nested ones included."""


@dataclass(frozen=True, slots=True)
class Misread:
    """What cannot be read: the characters from `start`, and what to write."""

    start: int
    what: str


@dataclass(frozen=True, slots=True)
class Reading:
    """A filter as far as it can be read."""

    query: Query
    faults: tuple[Misread, ...] = ()


def parse(text: str, saved: Mapping[str, str] | None = None) -> Query:
    """The filter. Raises QueryError, which names the place of the first fault."""
    reading = read(text, saved)
    if reading.faults:
        fault = reading.faults[0]
        raise QueryError(f"filter, character {fault.start + 1}: {fault.what}")
    return reading.query


def read(text: str, saved: Mapping[str, str] | None = None) -> Reading:
    """Return the readable part of a filter and the faults. `saved` are filters for `@name`."""
    if len(text) > LONGEST:
        too_long = Misread(LONGEST, f"a filter has at most {LONGEST} characters")
        return Reading(EVERYTHING, (too_long,))
    parser = _Parser(text, saved or {})
    query = parser.whole()
    return Reading(query, tuple(sorted(parser.faults, key=lambda fault: fault.start)))


_ENDS = frozenset("()|")
_QUOTES = frozenset("\"'")
_FIELD = re.compile(r"([A-Za-z_]+)(:(?!:)|<=|>=|<|>|=)")
_NUMBER = re.compile(r"([+-]?\d{1,15}(?:\.\d{0,15})?(?:[eE][+-]?\d{1,2})?)([^\d\s.]*)")


class _Parser:
    """Goes once through the text. For a saved filter there is one `within` that of its name."""

    def __init__(self, text: str, saved: Mapping[str, str], within: _Parser | None = None) -> None:
        self.faults: list[Misread] = []
        self._text = text
        self._saved = saved
        self._depth: int = within._depth + 1 if within else 0
        self._named_so_far: list[str] = within._named_so_far if within else []
        self._at = 0
        self._given_up = False

    def whole(self) -> Query:
        """The filter; a `)` too many is left out."""
        terms = [self._either()]
        while self._at < len(self._text):
            self._fault(self._at, "no ( before this )")
            self._at += 1
            terms.append(self._either())
        return _all(terms)

    def _fault(self, start: int, what: str) -> None:
        if not self._given_up:
            self.faults.append(Misread(start, what))

    def _either(self) -> Query:
        """Up to the end, or the `)` that is not ours."""
        parts: list[Query] = []
        terms: list[Query] = []
        lone: int | None = None  # where an OR is that has nothing behind it yet
        while self._skip_blanks() and self._text[self._at] != ")":
            start = self._at
            if self._takes_or():
                if lone is not None or not terms:
                    self._fault(start, "OR needs a condition on each side")
                parts, terms, lone = [*parts, *([_all(terms)] if terms else [])], [], start
                continue
            term = self._term()
            lone = None
            if term is not None:
                terms.append(term)
        if lone is not None:
            self._fault(lone, "OR needs a condition on each side")
        parts += [_all(terms)] if terms else []
        return parts[0] if len(parts) == 1 else Either(tuple(parts)) if parts else EVERYTHING

    def _skip_blanks(self) -> bool:
        """To the next character; False at the end."""
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1
        return self._at < len(self._text)

    def _takes_or(self) -> bool:
        if self._text[self._at] == "|":
            self._at += 1
            return True
        return self._takes_word("OR")

    def _takes_word(self, word: str) -> bool:
        """Whether this word is next; then it is consumed."""
        end = self._at + len(word)
        if self._text[self._at : end] != word:
            return False
        if end < len(self._text) and not (self._text[end].isspace() or self._text[end] in _ENDS):
            return False
        self._at = end
        return True

    def _term(self) -> Query | None:
        """One condition; None where it cannot be read, or says nothing."""
        negated, start = False, self._at
        while self._at < len(self._text):
            if self._text[self._at] in "!-":
                self._at += 1
            elif not self._takes_word("NOT"):
                break
            else:
                self._skip_blanks()
            negated = not negated
        if self._at == len(self._text) or self._text[self._at].isspace():
            self._fault(start, "! and - go right before what they turn round")
            return None
        term = self._positive()
        return Not(term) if negated and term is not None else term

    def _positive(self) -> Query | None:
        start, char = self._at, self._text[self._at]
        if char == "(":
            return self._group(start)
        if char == ")" or char == "|":
            self._fault(start, "! and - go right before what they turn round")
            self._at += 0 if char == ")" else 1
            return None
        if char == "@":
            return self._named(start)
        if char in _QUOTES:
            text = self._quoted()
            return Text(_small(text)) if text else None
        match = _FIELD.match(self._text, self._at)
        if match is not None:
            name, sign = match.groups()
            field = BY_NAME.get(name.lower())
            if field is not None:
                self._at = match.end()
                return self._condition(start, field, sign)
            if sign != "=":
                self._bare()
                self._fault(start, _no_field(name))
                return None
        return Text(_small(self._bare()))

    def _group(self, start: int) -> Query | None:
        if self._depth == DEEPEST:
            self.faults = [Misread(start, f"more than {DEEPEST} parentheses within each other")]
            self._at, self._given_up = len(self._text), True
            return None
        self._at += 1
        self._depth += 1
        query = self._either()
        self._depth -= 1
        if self._at < len(self._text):
            self._at += 1
        else:
            self._fault(start, "no ) ends this (")
        if query == EVERYTHING:
            if not any(fault.start >= start for fault in self.faults):
                self._fault(start, "nothing between ( and )")
            return None
        return query

    def _named(self, start: int) -> Query | None:
        """Read a saved filter as if its text were here in parentheses."""
        name = self._bare()[1:]
        text = self._saved.get(name)
        if text is None:
            near = nearest(name, self._saved)
            hint = f"; did you mean @{near}?" if near else ""
            self._fault(start, f"no filter is saved as {name or 'that'}{hint}")
            return None
        self._named_so_far.append(name)
        if self._depth == DEEPEST or len(self._named_so_far) > MOST_NAMED:
            self._fault(start, f"@{name} holds itself, or too many others")
            return None
        inner = _Parser(text[:LONGEST], self._saved, self)
        query = inner.whole()
        self.faults += [Misread(start, f"in @{name}: {fault.what}") for fault in inner.faults[:1]]
        return None if query == EVERYTHING else query

    # Single words.

    def _bare(self) -> str:
        """Up to a blank, a parenthesis or a |."""
        start, text = self._at, self._text
        while self._at < len(text) and not (text[self._at].isspace() or text[self._at] in _ENDS):
            self._at += 1
        return text[start : self._at]

    def _quoted(self) -> str:
        """Return the text between two quotes, and consume them."""
        start, quote = self._at, self._text[self._at]
        end = self._text.find(quote, start + 1)
        if end < 0:
            self._fault(start, f"no {quote} ends this one")
            end = len(self._text)
        self._at = min(end + 1, len(self._text))
        return self._text[start + 1 : end]

    def _values(self) -> Iterator[tuple[int, str]]:
        """Return the values of a field, separated by commas, and their places."""
        while True:
            self._at = start = min(self._at, len(self._text))
            if start < len(self._text) and self._text[start] in _QUOTES:
                value = self._quoted()
            else:
                while self._at < len(self._text) and not self._ends_value():
                    self._at += 1
                value = self._text[start : self._at]
            yield start, value
            if self._at >= len(self._text) or self._text[self._at] != ",":
                return
            self._at += 1

    def _ends_value(self) -> bool:
        char = self._text[self._at]
        return char == "," or char.isspace() or char in _ENDS

    def _condition(self, start: int, field: QueryField, sign: str) -> Query | None:
        values = [(at, value) for at, value in self._values() if value]
        if not values:
            self._fault(start, f"{field.name}{sign} wants a value, as in {field.example}")
            return None
        single = values[0][1].lower() if len(values) == 1 else ""
        if sign in ":=" and single == "none":
            return Not(IsKnown(field.name))
        if sign in ":=" and single == "*":
            return IsKnown(field.name)
        if field.kind == "number":
            ranges = [self._range(at, field, sign, value) for at, value in values]
            good = tuple(limits for limits in ranges if limits is not None)
            return Within(field.name, good) if good else None
        if sign not in ":=":
            self._fault(start, f"{field.name} is no number: {field.example}")
            return None
        return OneOf(field.name, tuple(_small(value) for _, value in values))

    def _range(self, start: int, field: QueryField, sign: str, value: str) -> Range | None:
        low, dots, high = value.partition("..")
        if dots and sign in ":=":
            first = self._number(start, field, low) if low else (-inf, 0.0)
            last = self._number(start, field, high) if high else (inf, 0.0)
            if first is None or last is None:
                return None
            if first[0] > last[0]:
                self._fault(start, f"{low} is more than {high}: write {field.name}:{high}..{low}")
                return None
            return Range(first[0], last[0])
        number = self._number(start, field, value)
        if number is None:
            return None
        exact, half = number
        return _SIGNS[sign](exact, half)

    def _number(self, start: int, field: QueryField, text: str) -> tuple[float, float] | None:
        """The number, and half of what its last digit is worth."""
        match = _NUMBER.fullmatch(text.replace("×", "x"))
        if match is None:
            self._fault(start, f"{field.name} wants a number, as in {field.example}")
            return None
        digits, unit = match.groups()
        factor = field.units.get(unit.lower())
        if factor is None:
            units = ", ".join(name for name in field.units if name)
            wants = f"one of the units {units}" if units else "a number without a unit"
            self._fault(start, f"{field.name} wants {wants}, as in {field.example}")
            return None
        mantissa, _, power = digits.lower().partition("e")
        places = len(mantissa.partition(".")[2]) - int(power or 0)
        return float(digits) * factor, 0.5 * 10.0**-places * factor


_SIGNS: Mapping[str, Callable[[float, float], Range]] = {
    ":": lambda number, half: Range(number - half, number + half),
    "=": lambda number, half: Range(number - half, number + half),
    "<": lambda number, half: Range(high=number, open=True),
    ">": lambda number, half: Range(low=number, open=True),
    "<=": lambda number, half: Range(high=number),
    ">=": lambda number, half: Range(low=number),
}


def _small(text: str) -> str:
    return text.lower().replace("×", "x")


def _all(terms: list[Query]) -> Query:
    kept = tuple(term for term in terms if term != EVERYTHING)
    return kept[0] if len(kept) == 1 else All(kept)


def _no_field(name: str) -> str:
    near = nearest(name.lower(), BY_NAME)
    hint = f"did you mean {near}?" if near else "in quotes it is text"
    return f"no field is called {name}; {hint}"
