"""A year of sessions: what joining them costs is counted, not timed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from backend.model.choice import Choice, sort_choices
from backend.model.events import ChoiceTimed
from backend.model.tuning import Tuning
from backend.wire.events import encode
from rocm_tui.ingest.formats.event_log import EventLog
from rocm_tui.ingest.records import Gone, Seen
from rocm_tui.session import views
from rocm_tui.session.model import Model

KEY = "[('cpu', 'torch.float32', 64, 64, 64, 1, 0), ('cpu', 'torch.float32', 64, 64, 64, 1, 0)]"
SHAPES = ((64, 64), (64, 64))


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Counts how often a view is held against a tuning."""
    count = [0]
    fits = views._Group.fits

    def counted(*args: object) -> bool:
        count[0] += 1
        return fits(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(views._Group, "fits", counted)
    yield count


def session(n: int, draw: random.Random) -> Tuning:
    """One program's tuning, with the times that a quiet machine gives again and again."""
    choices = [
        Choice(f"cpp_{c}", f"CppMicroGemm-{c}", 0.0123 * (c + 1) * draw.uniform(0.999, 1.001))
        for c in range(3)
    ]
    return Tuning(
        "mm", SHAPES, dtypes=("torch.float32",) * 2, device="cpu", precision="highest",
        inputs_key=KEY, choices=sort_choices(choices), session=f"s{n}", when=float(n),
        selected_by="timing", sources=(f"/s/{n}.jsonl",),
    )  # fmt: skip


def printed(tuning: Tuning, source: str) -> Tuning:
    """The same as stderr has it."""
    choices = [Choice(c.name, ms=round(c.ms or 0.0, 4)) for c in tuning.choices]
    return Tuning("mm", SHAPES, choices=sort_choices(choices), sources=(source,))


def test_sessions_of_one_model_are_hardly_compared(compared: list[int]) -> None:
    draw, count = random.Random(0), 400
    model = Model()
    model.apply([Seen(f"/s/{n}.jsonl#1", session(n, draw)) for n in range(count)])
    assert len(model.rows()) == count
    assert compared[0] <= count


def test_a_table_printed_again_and_again(compared: list[int]) -> None:
    count, table = 2000, printed(session(0, random.Random(0)), "/l/train.log")
    model = Model()
    model.apply([Seen(f"/l/train.log#{n}", table) for n in range(count)])
    assert len(model.rows()) == count
    assert compared[0] <= count
    copy = replace(table, sources=("/l/copy.log",))
    model.apply([Seen(f"/l/copy.log#{n}", copy) for n in range(count)])
    assert len(model.rows()) == count
    assert compared[0] <= 4 * count


def test_what_sessions_printed_finds_each_of_them(compared: list[int]) -> None:
    draw, count = random.Random(1), 300
    tunings = [session(n, draw) for n in range(count)]
    model = Model()
    model.apply([Seen(f"/s/{n}.jsonl#1", tuning) for n, tuning in enumerate(tunings)])
    model.apply(
        [Seen(f"/l/all.log#{n}", printed(tuning, "/l/all.log")) for n, tuning in enumerate(tunings)]
    )
    rows = model.rows()
    assert len(rows) == count
    assert all(len(row.tuning.sources) == 2 for row in rows)


def test_joined_in_slices_it_is_the_same() -> None:
    draw = random.Random(2)
    records = [
        Seen(f"/s/{n}.jsonl#{m}", replace(session(n, draw), shapes=((m, 64), (64, 64))))
        for n in range(5)
        for m in range(40)
    ]
    whole, sliced = Model(), Model()
    whole.apply(records)
    for at in range(0, len(records), 7):
        sliced.put(records[at : at + 7])
        sliced.join(0.0)
    assert sliced.unjoined
    while sliced.unjoined:
        assert sliced.join(0.0).changed
    assert sliced.rows() == whole.rows()
    sliced.apply([Gone("/s/3.jsonl")])
    assert len(sliced.rows()) == 160


def test_what_is_told_after_the_end_counts() -> None:
    log = EventLog("/s/a.jsonl")
    start = (
        '{"event":"tuning_started","n":1,"when":1.0,"op":"mm","inputs":"k","precision":"highest",'
        '"shapes":[],"strides":[],"dtypes":[],"device":"cpu","choices":[{"name":"mm","hash":"h"}]}'
    )
    end = (
        '{"event":"choice_selected","n":1,"when":2.0,"hash":"h","by":"timing",'
        '"benchmark_seconds":1.0,"precompile_seconds":null}'
    )
    log.feed(f"{start}\n{encode(ChoiceTimed(1, 'h', 2.0))}\n{end}\n".encode())
    (late,) = log.feed(f"{encode(ChoiceTimed(1, 'h', 1.5))}\n".encode())
    assert isinstance(late, Seen)
    (choice,) = late.tuning.choices
    assert (choice.name, choice.ms) == ("mm", 1.5)
    assert late.tuning.selected == "h" and late.tuning.seconds.benchmark == 1.0
    assert late.tuning.state == "done"
