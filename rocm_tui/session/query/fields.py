"""What can be asked of a tuning: ONE table of fields, for filters, sorting, completion, help and
docs/watching.md.

A field reads words (`op`, `dtype`, `session`: a row may have several), sizes, or a number. What is
not known is no word, or None.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import Literal

from backend.model.inductor_kernel import is_kernel, sizes_of
from backend.model.ops import gemm_sizes
from backend.model.origin import device_kind, own_template, provider
from backend.model.session import Session
from rocm_tui.harmless import plain
from rocm_tui.session import in_use, stats
from rocm_tui.session.devices import machine_of
from rocm_tui.session.grouping import tuner_of
from rocm_tui.session.in_use import device_name
from rocm_tui.session.model import Row
from rocm_tui.session.sessions import session_names

Kind = Literal["word", "sizes", "number"]
Words = tuple[str, ...]
Value = Words | float | None


@dataclass(slots=True)
class Known:
    """What is known besides the rows: the sessions, and what time it is."""

    sessions: Mapping[str, Session] = field(default_factory=lambda: MappingProxyType({}))
    now: float = field(default_factory=time.time)


@dataclass(frozen=True, slots=True)
class QueryField:
    """`about` is its sentence. `units` may follow a number, each with its value; the empty one
    if none is needed. `largest` means that sorting begins with the largest
    number, `title` what that order is called, `column` the key of the column that shows it.
    `moving` is one that changes with time alone. `place` is what orders words otherwise than by
    their letters. The first word of a row is what it is called and the others are its other names,
    but where `each` is one of its own.
    """

    name: str
    kind: Kind
    read: Callable[[Row, Known], Value]
    about: str
    also: Words = ()
    units: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({"": 1.0}))
    largest: bool = False
    title: str = ""
    column: str = ""
    moving: bool = False
    place: Callable[[Row], float | None] | None = None
    example: str = ""
    each: bool = False

    @property
    def called(self) -> str:
        """Its order, as a person reads it."""
        return self.title or self.name


def _words(*texts: str | None) -> Words:
    """Return the texts that are not empty, each once, as they are compared."""
    return tuple(dict.fromkeys(plain(text).lower() for text in texts if text))


def _dtype(row: Row, known: Known) -> Words:
    """`bf16`, and what PyTorch calls it."""
    bare = [dtype.removeprefix("torch.") for dtype in row.tuning.dtypes]
    short = stats.dtype_of(row.tuning)
    return _words(short, *short.split("·"), *bare)


def _sizes(row: Row, known: Known) -> Words:
    """Each as `x8x128x256x`: a size, or several in a row, are found between two `x`."""
    tuning = row.tuning
    kernel = is_kernel(tuning.op)  # whose text has the kernel's name before
    whole = sizes_of(tuning.inputs_key or "") if kernel else stats.sizes_text(tuning)
    operands = ["x".join(map(str, shape)) for shape in tuning.shapes]
    return tuple(f"x{text.replace('×', 'x')}x" for text in (*whole.split(" · "), *operands) if text)


def _volume(row: Row) -> float | None:
    sizes = gemm_sizes(row.tuning)
    if sizes is not None:
        return float(prod(sizes))
    return float(max((prod(shape) for shape in row.tuning.shapes), default=0)) or None


def _device(row: Row, known: Known) -> Words:
    """`gfx942`, `cuda:0`, `cuda`, `gpu`, the words of its name."""
    device = row.tuning.device or ""
    machine = machine_of(row.tuning, known.sessions)
    entry = row.tuning.entry
    arch = (machine.arch or (entry.device if entry else "")).partition(":")[0]
    kind = device_kind(row.tuning)
    name = machine.name if machine.name != "cpu" else ""
    indices = map(device_name, (row.devices or (row,)))
    return _words(arch, *indices, device, device.partition(":")[0], kind, name, *name.split())


def _session(row: Row, known: Known) -> Words:
    """Return `HOST-PID`, host, id and run of each session that asked."""
    words: list[str | None] = []
    for id_ in dict.fromkeys((row.tuning.session, *row.asked)):
        session = known.sessions.get(id_ or "")
        if session is not None:
            words += [f"{session.host}-{session.pid}", session.host, *session_names(session)]
        words.append(id_)
    return _words(*words)


def _torch(row: Row, known: Known) -> Words:
    """`2.13.0+cpu`, `2.13.0`, `2.13`."""
    session = known.sessions.get(row.tuning.session or "")
    version = session.torch if session else ""
    bare = version.partition("+")[0]
    return _words(version, bare, ".".join(bare.split(".")[:2]))


def _source(row: Row, known: Known) -> Words:
    """The names of its files, then their folders and whole paths."""
    sources = [source for device in (row.devices or (row,)) for source in device.tuning.sources]
    paths = [source.split("/") for source in sources]
    names = [path[-1] for path in paths]
    folders = [part for path in paths for part in reversed(path[:-1])]
    return _words(*names, *folders, *sources)


def _winner(row: Row, known: Known) -> Words:
    used = [
        in_use.in_use(device) or stats.chosen(device.tuning) for device in (row.devices or (row,))
    ]
    return _words(*(t for c in used if c for t in (c.label, c.hash, c.name, c.description)))


def _by(row: Row, known: Known) -> Words:
    best = in_use.in_use(row)
    if best is None:
        return ()
    return _words(provider(best), "ours" if own_template(best.hash) else None)


STANDINGS: Mapping[str, str] = {"tied": "tie", "slower": "beaten"}
"""Words of the table that differ from how `stats.standing` calls them."""


def _verdict(row: Row, known: Known) -> Words:
    own = in_use.in_use(row)
    how = stats.standing(row.tuning, own) if row.tuning.state == "done" else None
    return _words(STANDINGS.get(how or "", how), how)


def failed(row: Row) -> bool:
    """Whether it ended without a choice that can be used."""
    tuning = row.tuning
    used = stats.winner(tuning) or stats.chosen(tuning) or tuning.selected
    return tuning.state == "done" and used is None and len(tuning.choices) > 0


def _state(row: Row, known: Known) -> Words:
    return ("failed", "done") if failed(row) else (row.tuning.state,)


def _is(row: Row, known: Known) -> Words:
    tuning = row.tuning
    said = {
        "pinned": row.pin is not None,
        "measured": tuning.measured is not None,
        "suspect": row.suspect is not None,
        "single": stats.single(tuning),
    }
    return tuple(word for word, true in said.items() if true)


def _time(row: Row, known: Known) -> float | None:
    return in_use.time_ms(row)


_PERCENT = MappingProxyType({"": 0.01, "%": 0.01, "x": 1.0})
_RATIO = MappingProxyType({"": 1.0, "x": 1.0})
_DURATION = MappingProxyType({"": 1.0, "ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1.0, "s": 1e3})
_AGES = MappingProxyType({"s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 6048e2})

FIELDS: tuple[QueryField, ...] = (
    QueryField(
        "op", "word", lambda row, _: _words(row.tuning.op), "what Inductor tuned, the whole word",
        example="op:mm",
    ),
    QueryField("dtype", "word", _dtype, "type of the operands", ("type",), example="dtype:bf16"),
    QueryField(
        "shape", "sizes", _sizes, "a size of the problem or of an operand, or several in a row",
        ("size",), largest=True, place=_volume, example="shape:4096x128",
    ),
    QueryField(
        "layout", "word", lambda row, _: _words(row.layout),
        "of both factors: nn, nt, tn, tt; nhwc or nchw of a convolution", example="layout:nt",
    ),
    QueryField(
        "device", "word", _device, "architecture, name or index of the device that tuned it",
        ("dev",), example="device:gfx942",
    ),
    QueryField(
        "gain", "number",
        lambda row, _: None if row.tuning.state == "running" else in_use.gain(row),
        "ATen's time over that of what is in use",
        units=_RATIO, largest=True, title="vs ATen", example="gain>1.2",
    ),
    QueryField(
        "lead", "number",
        lambda row, _: in_use.lead(row) if row.tuning.state == "done" else None,
        "how far the next choice lies behind what is in use",
        units=_PERCENT, largest=True, example="lead<2%",
    ),
    QueryField(
        "time", "number", _time, "of one call of what is in use; ms without a unit",
        units=_DURATION, largest=True, example="time>1ms",
    ),
    QueryField(
        "age", "number",
        lambda row, known: None if row.when is None else max(0.0, known.now - row.when),
        "since it was tuned or first seen", units=_AGES, title="newest", moving=True,
        example="age<2h",
    ),
    QueryField(
        "choices", "number", lambda row, _: float(stats.tried(row.tuning)), "how many were tried",
        ("n",), largest=True, column="n", example="choices>5",
    ),
    QueryField(
        "failed", "number",
        lambda row, _: float(sum(choice.failed for choice in row.tuning.choices)),
        "how many choices failed", largest=True, example="failed>0",
    ),
    QueryField(
        "rank", "number", lambda row, _: row.tuning.rank, "process of a distributed job",
        example="rank:3",
    ),
    QueryField(
        "by", "word", _by, "who made what is in use: aten, triton, cpp, ck, flydsl, rocm, ours",
        example="by:triton", each=True,
    ),
    QueryField(
        "tuner", "word", lambda row, _: _words(tuner_of(row) or "inductor"),
        "whose table has it: tunableop, aiter, ...; or inductor", example="tuner:tunableop",
    ),
    QueryField(
        "winner", "word", _winner, "the choice in use: pinned, else the fastest",
        ("use", "fastest"), example="winner:mm*",
    ),
    QueryField(
        "verdict", "word", _verdict, "of what is in use: clear, ahead, tie, unclear, beaten",
        example="verdict:tie",
    ),
    QueryField("state", "word", _state, "running, done, cut or failed", example="state:failed"),
    QueryField(
        "is", "word", _is, "pinned, measured, suspect, or single: of one choice",
        example="is:measured", each=True,
    ),
    QueryField(
        "pin", "word", lambda row, _: (row.pin.state, "pinned") if row.pin else (),
        "state of its pin", example="pin:drifted",
    ),
    QueryField(
        "session", "word", _session, "the process that tuned it: HOST-PID, its host, its id",
        ("host",), example="session:vm-51",
    ),
    QueryField("torch", "word", _torch, "that session's version of PyTorch", example="torch:2.13"),
    QueryField(
        "source", "word", _source, "a file that has it, a folder of its path, or the whole path",
        ("from",), example="source:train.log",
    ),
    QueryField(
        "precision", "word", lambda row, _: _words(row.tuning.precision),
        "of float32 products", example="precision:highest",
    ),
    QueryField(
        "share", "number", lambda row, _: row.share.share if row.share else None,
        "its part of the program's time", units=_PERCENT, largest=True, example="share>5%",
    ),
    QueryField(
        "to_gain", "number", lambda row, _: row.share.to_gain if row.share else None,
        "what of the program's time a faster choice saves at most", units=_PERCENT, largest=True,
        title="to gain", example="to_gain>1%",
    ),
    QueryField(
        "calls", "number", lambda row, _: row.share.calls if row.share else None,
        "how often the program called it", largest=True, example="calls>100",
    ),
    QueryField(
        "tflops", "number", lambda row, known: stats.tflops(row.tuning, _time(row, known)),
        "throughput of what is in use, 10^12 operations a second", largest=True,
        example="tflops<100",
    ),
    QueryField(
        "id", "word", lambda row, _: _words(*row.ids), "of the tuning",
        example="id:3fa91c2",
    ),
)  # fmt: skip
BY_NAME: Mapping[str, QueryField] = {
    name: field for field in FIELDS for name in (field.name, *field.also)
}


def searched(row: Row, known: Known) -> Words:
    """What a bare word is looked for in: op, shape, type, winner, verdict, pin, state, id."""
    tuning = row.tuning
    pin = f"pinned {row.pin.state}" if row.pin else ""
    suspect = "suspect" if row.suspect else ""
    own = in_use.in_use(row) or stats.chosen(tuning)
    name = f"{own.label} {own.description}" if own else ""
    texts = (tuning.op, stats.sizes_text(tuning), stats.dtype_of(tuning), name)
    verdict, state = _verdict(row, known)[:1], _state(row, known)[0]
    text = plain(" ".join((*texts, *verdict, pin, suspect, state, row.id)))
    return (text.lower().replace("×", "x"),)


SEARCHED = QueryField("text", "word", searched, "bare words: anything that a row shows")
"""What bare words are compared with. It is no name that can be typed."""


class FieldValues:
    """What the fields say of the rows, read again only when a row has changed."""

    def __init__(self, known: Known | None = None) -> None:
        self.known = known or Known()
        self._of: dict[str, dict[str, tuple[Row, Value]]] = {}

    def reader(self, field: QueryField) -> Callable[[Row], Value]:
        """Reads this field of rows."""
        if field.moving:
            return lambda row: field.read(row, self.known)
        values = self._of.setdefault(field.name, {})

        def read(row: Row) -> Value:
            cached = values.get(row.key)
            if cached is None or cached[0] is not row:
                cached = values[row.key] = row, field.read(row, self.known)
            return cached[1]

        return read

    @property
    def held(self) -> int:
        """How many rows are remembered at most."""
        return max(map(len, self._of.values()), default=0)

    def keep(self, rows: Iterable[Row], count: int) -> None:
        """Forget the rows that are gone, once they are as many as these, which are `count`."""
        if self.held > 2 * count:
            keys = {row.key for row in rows}
            for values in self._of.values():
                for key in values.keys() - keys:
                    del values[key]
