"""The short way through an event log: whatever it takes, it reads as the long one."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from backend.errors import EventInvalid
from backend.model.choice import Choice
from backend.model.events import (
    BenchmarkStarted,
    ChoiceCompiled,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    Event,
    SessionEnded,
    SessionStarted,
    TuningFailed,
    TuningStarted,
)
from backend.model.session import Session
from backend.wire.events import (
    Offer,
    decode,
    decode_selected,
    decode_started,
    decode_timed,
    encode,
)
from rocm_tui.ingest.formats import event_log
from rocm_tui.ingest.formats.event_log import EventLog
from rocm_tui.ingest.records import Record

TEXT = st.sampled_from(
    ["mm", "triton_mm-0a", "aten, [x]", 'a"b', "\x1b[31mred", "ä", "", "},{", "\t"]
)
HASH = st.sampled_from(["mm-ext", "triton_mm-0a", "CppMicroGemm-7", 'q"', "", "\x1b[2J"])
MS = st.one_of(st.sampled_from([0.0, 0.5, 0.0123, 1e-7, 1e300, -1.0]), st.floats())
COUNT = st.sampled_from([1, 1, 1, 2, 2, 3, -1, 10**12])
SIZES = st.lists(st.lists(st.integers(-1, 1 << 70), max_size=3).map(tuple), max_size=2).map(tuple)
CHOICE = st.builds(
    Choice, TEXT, HASH, st.sampled_from([None, None, None, 0.5]), TEXT,
    st.sampled_from([False, False, False, True]), st.sampled_from([None, None, "why"]),
)  # fmt: skip
STARTED = st.builds(
    TuningStarted, COUNT, MS, TEXT, TEXT, TEXT, SIZES, SIZES,
    st.lists(TEXT, max_size=2).map(tuple), TEXT, st.lists(CHOICE, max_size=4).map(tuple), TEXT,
)  # fmt: skip
SELECTED = st.builds(
    ChoiceSelected, COUNT, MS, HASH, st.sampled_from(["timing", "cache", "pin", "only"]),
    st.one_of(st.none(), MS), st.one_of(st.none(), MS),
)  # fmt: skip
PLAIN_TEXT = st.sampled_from(["mm", "triton_mm_3", "BLOCK_M=16, num_warps=4", "},{", ""])
PLAIN_HASH = st.sampled_from(["mm-ext", "triton_mm-0a", "CppMicroGemm-7"])
PLAIN_MS = st.sampled_from([0.5, 0.25, 0.0123, 1e-7])
SIZE = st.sampled_from([(), ((2, 3), (3, 4))])
PLAIN: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        TuningStarted, COUNT, PLAIN_MS, PLAIN_TEXT, PLAIN_TEXT, PLAIN_TEXT, SIZE, SIZE,
        st.just(("torch.float32",)), PLAIN_TEXT,
        st.lists(st.builds(Choice, PLAIN_TEXT, PLAIN_HASH, st.none(), PLAIN_TEXT), max_size=4).map(
            tuple
        ),
        st.sampled_from(["", "groups=1,stride=2x2"]),
    ),
    st.builds(ChoiceTimed, COUNT, PLAIN_HASH, PLAIN_MS),
    st.builds(ChoiceTimed, COUNT, PLAIN_HASH, PLAIN_MS),
    st.builds(ChoiceSelected, COUNT, PLAIN_MS, PLAIN_HASH, st.just("timing"), PLAIN_MS, st.none()),
)  # fmt: skip
ODD: st.SearchStrategy[Event] = st.one_of(
    STARTED, st.builds(ChoiceTimed, COUNT, HASH, MS), SELECTED,
    st.builds(ChoiceCompiled, COUNT, HASH, MS), st.builds(BenchmarkStarted, COUNT),
    st.builds(TuningFailed, COUNT, MS, TEXT), st.builds(SessionEnded, MS),
    st.builds(ChoiceFailed, COUNT, HASH, st.sampled_from(["precompile", "benchmark"]), TEXT),
    st.just(SessionStarted(Session("s", host="elsewhere", pid=1, started=1.0, threads=2))),
)  # fmt: skip
EVENT = st.integers(0, 4).flatmap(lambda n: PLAIN if n else ODD)
DAMAGE = st.sampled_from([*[b""] * 20, b" ", b"\r", b'"', b",", b"]", b"}", b"0", b"-", b"\xff"])


@st.composite
def tunings(draw: st.DrawFn) -> list[Event]:
    """The events of a tuning that follow each other; some are of another one."""
    n, other = draw(COUNT), draw(st.sampled_from([None] * 5 + [1, 2]))
    offers = st.lists(st.builds(Choice, PLAIN_TEXT, PLAIN_HASH, st.none(), PLAIN_TEXT), min_size=1)
    events: list[Event] = [
        TuningStarted(
            n, 1.5, "mm", draw(PLAIN_TEXT), "highest", ((2, 3),), ((3, 1),), ("torch.float32",),
            "cpu", tuple(draw(offers)), draw(st.sampled_from(["", "groups=1,stride=2x2"])),
        )
    ]  # fmt: skip
    hashes = draw(st.lists(PLAIN_HASH, max_size=3))
    events += [ChoiceCompiled(n, key, draw(st.sampled_from([None, 0.5]))) for key in hashes]
    events += draw(st.sampled_from([[], [BenchmarkStarted(n, 2.5)]]))
    events += [ChoiceTimed(n, draw(PLAIN_HASH), draw(PLAIN_MS)) for _ in hashes]
    if other:
        events.append(ChoiceTimed(other, "mm-ext", 0.5))
    events.append(ChoiceSelected(n, 3.5, draw(PLAIN_HASH), "timing", draw(PLAIN_MS), None))
    return events


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Lines as they are written, some of them with a byte too many or too few."""
    lines = []
    parts = draw(st.lists(st.one_of(EVENT.map(lambda event: [event]), tunings()), max_size=14))
    for event in chain.from_iterable(parts):
        try:
            line = encode(event).encode()
        except ValueError:  # what JSON has no number for
            continue
        bad = draw(DAMAGE)
        if bad:
            at = draw(st.integers(0, len(line)))
            line = line[:at] + bad + line[at + draw(st.integers(0, 1)) :]
        lines.append(line)
    return b"\n".join(lines) + draw(st.sampled_from([b"\n", b""]))


def read(log: bytes, cuts: list[int]) -> list[Record]:
    reader, records, at = EventLog("/s/a.jsonl"), [], 0
    for cut in [*sorted(cuts), len(log)]:
        records += reader.feed(log[at:cut])
        at = max(at, cut)
    return [*records, *reader.close()]


def the_long_way(log: bytes, cuts: list[int]) -> list[Record]:
    names = ("decode_timed", "decode_started", "decode_selected")
    none = dict.fromkeys(names, lambda *_: None)
    with patch.multiple(event_log, **none):
        return read(log, cuts)


@settings(max_examples=150)
@given(logs(), st.lists(st.integers(0, 3000), max_size=3))
def test_both_ways_read_the_same(log: bytes, cuts: list[int]) -> None:
    cuts = [min(cut, len(log)) for cut in cuts]
    assert repr(read(log, cuts)) == repr(the_long_way(log, cuts))  # NaN is not equal to itself


@settings(max_examples=150)
@given(logs())
def test_a_short_reading_is_that_of_decode(log: bytes) -> None:
    for line in log.split(b"\n"):
        try:
            long = decode(line.decode("utf-8", "replace"))
        except EventInvalid:
            long = None
        if timed := decode_timed(line):
            assert ChoiceTimed(*timed) == long
        elif started := decode_started(line):
            choices = tuple(
                [Choice(name, hash_, None, text) for name, hash_, text in started.offers]
            )
            assert replace(started.event, choices=choices) == long
        elif selected := decode_selected(line):
            assert selected == long


def test_the_short_way_is_taken() -> None:
    choices = (Choice("mm", "mm-ext"), Choice("triton_mm_1", "triton_mm-0a", None, "BLOCK_M=16, x"))
    started = TuningStarted(
        3, 1.5, "mm", "[('cpu', 'torch.float32', 2, 2)]", "highest", ((2, 2), (2, 2)),
        ((2, 1), (2, 1)), ("torch.float32",) * 2, "cpu", choices,
    )  # fmt: skip
    offers = ("mm", "mm-ext", ""), ("triton_mm_1", "triton_mm-0a", "BLOCK_M=16, x")

    def told(line: bytes) -> tuple[TuningStarted, tuple[Offer, ...]] | None:
        start = decode_started(line)
        return (start.event, start.offers) if start else None

    assert told(encode(started).encode()) == (replace(started, choices=()), offers)
    convolution = replace(started, options="groups=1,stride=2x2")
    line = encode(convolution).encode()
    assert told(line) == (replace(convolution, choices=()), offers)
    older = line.replace(b',"options":"groups=1,stride=2x2"', b"")
    assert told(older) == (replace(started, choices=()), offers)
    selected = ChoiceSelected(3, 2.5, "mm-ext", "timing", 0.5, None)
    assert decode_selected(encode(selected).encode()) == selected
    timed = ChoiceTimed(3, "triton_mm-abc=[x]", 0.0123)
    assert decode_timed(encode(timed).encode() + b"\n") == (3, "triton_mm-abc=[x]", 0.0123)
    for odd in (b'"a\\u001b","ms":0.5}', b'"a","ms":1.0e999}', b'"a","ms":01.5}'):
        assert decode_timed(b'{"event":"choice_timed","n":1,"hash":' + odd) is None
