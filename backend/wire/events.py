"""Events as lines of strict JSON, and back.

A line is one object: `"event"` is the type's name in snake case, the rest are its fields.
"""

from __future__ import annotations

import functools
import re
import typing
from collections.abc import Callable, Sequence
from itertools import chain
from operator import itemgetter
from sys import intern
from typing import NamedTuple

from backend.errors import EventInvalid, brief
from backend.model.events import ChoiceSelected, Event, TuningStarted
from backend.model.problem import Shape
from backend.model.tuning import Selection
from backend.wire.codec import WireError, dumps, loads, reader, to_json

_SNAKE = re.compile(r"(?<!^)(?=[A-Z])")
_NAMES: dict[type, str] = {
    kind: _SNAKE.sub("_", kind.__name__).lower() for kind in typing.get_args(Event)
}


@functools.cache
def _readers() -> dict[str, Callable[[object], Event]]:
    """A process that only writes events makes none."""
    return {name: reader(kind) for kind, name in _NAMES.items()}


def encode(event: Event) -> str:
    """One line, without its end."""
    return dumps({"event": _NAMES[type(event)], **to_json(event)})


def decode(line: str) -> Event | None:
    """The event of a line; None for a kind that this version does not know.

    Raises EventInvalid for anything else that is not an event.
    """
    # Logs may have many lines of other programs; to say how they are no JSON takes long.
    if not line.lstrip().startswith("{"):
        raise EventInvalid(f"not an event: {brief(line, 60)}")
    try:
        document = loads(line)
    except WireError as error:
        raise EventInvalid(f"not JSON: {brief(line, 60)}") from error
    if not isinstance(document.get("event"), str):
        raise EventInvalid(f"not an event: {brief(line, 60)}")
    known = _readers().get(document["event"])
    try:
        return None if known is None else known(document)
    except WireError as error:
        raise EventInvalid(str(error)) from error


# What logs have most of, as `encode` writes it. Anything else is left to `decode`: the texts here
# have neither escapes nor control characters, the numbers no more digits than a double.
_CHARS = r"[ !#-\[\]-~]*"
_TEXT = rf'"({_CHARS})"'
_KEY = rf'"({_CHARS}(?:\\"{_CHARS})*)"'
"""The same, and quotes, which keys of kernels have."""
_WHOLE = r"(?:0|[1-9]\d{0,8})"
_REAL = r"(?:0|[1-9]\d{0,10})\.\d{1,20}(?:e-?\d{1,2})?"
_STARTED_LINE = (
    rf'\{{"event":"tuning_started","n":({_WHOLE}),"when":({_REAL}),"op":{_TEXT},"inputs":{_KEY},'
    rf'"precision":{_TEXT},"shapes":([\d,\[\]]*),"strides":([\d,\[\]]*),"dtypes":(\[[ -\[^-~]*\]),'
    rf'"device":{_TEXT},"choices":\[(.*)\](?:,"options":{_TEXT})?'
    rf'(?:,"kernel":{_TEXT},"source":{_TEXT})?\}}'
)
_SELECTED_END = (
    rf',"when":({_REAL}),"hash":{_TEXT},"by":"([a-z]+)",'
    rf'"benchmark_seconds":(null|{_REAL}),"precompile_seconds":(null|{_REAL})\}}'
)
_STARTED = re.compile(rf"{_STARTED_LINE}\s*")
_TIMED = re.compile(
    rf'\{{"event":"choice_timed","n":({_WHOLE}),"hash":{_TEXT},"ms":({_REAL})\}}\s*'.encode()
)
_SELECTED = re.compile(rf'\{{"event":"choice_selected","n":({_WHOLE}){_SELECTED_END}\s*'.encode())
_OFFER = '{"name":%s,"hash":%s,"ms":null,"description":%s,"failed":false,"reason":null}'
_OFFERS = re.compile(re.escape(_OFFER).replace("%s", _TEXT) + r"(?:,|\Z)")
_AROUND = len(_OFFER % ('""', '""', '""')) + 1
_BY: dict[str, Selection] = {by: by for by in typing.get_args(Selection)}
Offer = tuple[str, str, str]
"""Name, hash and description of a choice that is put up."""
_HASH = itemgetter(1)


class Start(NamedTuple):
    """The fields of a TuningStarted, and what is offered in place of its choices: there is one at
    least, and each has a hash. The texts are clean."""

    n: int
    when: float
    op: str
    inputs: str
    precision: str
    shapes: tuple[Shape, ...]
    strides: tuple[Shape, ...]
    dtypes: tuple[str, ...]
    device: str
    options: str
    kernel: str
    source: str
    offers: tuple[Offer, ...]

    @property
    def event(self) -> TuningStarted:
        """The TuningStarted without its choices."""
        return TuningStarted(*self[:9], (), self.options, self.kernel, self.source)


def decode_timed(line: bytes) -> tuple[int, str, float] | None:
    """The fields of the ChoiceTimed that `decode` makes of a plain line; else None."""
    match = _TIMED.fullmatch(line)
    if match is None:
        return None
    n, hash_, ms = match.groups()
    return int(n), hash_.decode("ascii"), float(ms)


def decode_selected(line: bytes) -> ChoiceSelected | None:
    """The ChoiceSelected that `decode` makes of a plain line; else None."""
    match = _SELECTED.fullmatch(line)
    if match is None:
        return None
    n, when, hash_, by, *seconds = [text.decode("ascii") for text in match.groups()]
    if by not in _BY:
        return None
    return ChoiceSelected(int(n), float(when), hash_, _BY[by], *map(_spent, seconds))


def _spent(text: str) -> float | None:
    return None if text == "null" else float(text)


def decode_started(line: bytes) -> Start | None:
    """What `decode` makes of a plain line of a TuningStarted; else None."""
    match = _STARTED.fullmatch(line.decode("ascii")) if line.isascii() else None
    return _start(match.groups()) if match else None


def _start(fields: Sequence[str]) -> Start | None:
    n, when, op, inputs, precision, shapes, strides, dtypes, device, choices = fields[:10]
    offers = (_short_offers if len(choices) < _SHORT else _offers)(choices)
    if not offers:
        return None
    try:
        sizes = _sizes(shapes), _sizes(strides), _words(dtypes)
    except WireError:
        return None
    texts = intern(op), intern(inputs.replace('\\"', '"')), intern(precision)
    told = intern(device), fields[10] or "", fields[11] or "", fields[12] or ""
    return Start(int(n), float(when), *texts, *sizes, *told, offers)


def _offers(text: str) -> tuple[Offer, ...]:
    """None if something else is between them, or one has no hash."""
    offers: list[Offer] = _OFFERS.findall(text)
    found = sum(map(len, chain.from_iterable(offers))) + len(offers) * _AROUND - 1
    if found != len(text) or not all(map(_HASH, offers)):
        return ()
    return tuple([(intern(name), intern(hash_), what) for name, hash_, what in offers])


_SHORT = 1 << 16
"""Characters of what is kept: a program that runs again offers the same."""
_short_offers = functools.lru_cache(256)(_offers)


_ROW = r"\[(?:0|[1-9]\d{0,17})(?:,(?:0|[1-9]\d{0,17}))*\]"
_ROWS = re.compile(rf"\[{_ROW}(?:,{_ROW})*\]")


@functools.lru_cache(1024)
def _sizes(text: str) -> tuple[Shape, ...]:
    """Raises WireError."""
    if _ROWS.fullmatch(text):  # no operand without a dimension: most of them
        return tuple(map(_shape, text[2:-2].split("],[")))
    return _shapes_reader()(loads(text))


@functools.lru_cache(1024)
def _shape(text: str) -> Shape:
    """One for all operands alike: a model's weights are multiplied with many inputs."""
    return tuple(map(int, text.split(",")))


@functools.lru_cache(1024)
def _words(text: str) -> tuple[str, ...]:
    """Raises WireError."""
    return tuple(map(intern, _words_reader()(loads(text))))


@functools.cache
def _shapes_reader() -> Callable[[object], tuple[Shape, ...]]:
    return reader(tuple[Shape, ...])


@functools.cache
def _words_reader() -> Callable[[object], tuple[str, ...]]:
    return reader(tuple[str, ...])
