"""A part that another process made is the part that this one would have made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.events import (
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    Event,
    SessionEnded,
    SessionStarted,
    TuningStarted,
)
from backend.model.session import Session
from backend.wire.events import encode
from rocm_tui.actions.compare import Ahead, read_part
from rocm_tui.compare.packing import packed_part, unpacked_part
from rocm_tui.ingest.packed import PackedTuning

CHOICES = (Choice("mm", "mm-ext"), Choice("triton_mm_1", "triton_mm-1", description="BLOCK_M=32"))


def events(at: int, count: int, *, ends: bool) -> Iterator[Event]:
    """Of a program that tunes every second, beside others; one choice of the last tuning fails."""
    yield SessionStarted(Session(id=f"{at:016x}", host="box", pid=1000 + at, started=1.7e9))
    for n in range(1, count + 1):
        when = 1.7e9 + n + at / 10
        inputs = f"[('cpu', 'torch.float32', {n}, 32, 32, 1, 0)]"
        yield TuningStarted(
            n, when, "mm", inputs, "highest", ((n, 32), (32, 64)), ((32, 1), (64, 1)),
            ("torch.float32",) * 2, "cpu", CHOICES,
        )  # fmt: skip
        yield ChoiceTimed(n, "mm-ext", 0.5 / n)
        if n < count:
            yield ChoiceTimed(n, "triton_mm-1", 0.25)
            yield ChoiceSelected(n, when, "mm-ext", "cache" if at == 2 else "timing", 0.1, None)
        else:
            yield ChoiceFailed(n, "triton_mm-1", "benchmark", "out of memory")
    if ends:
        yield SessionEnded(1.7e9 + 100)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cache dir with programs that ran side by side, and a log of stderr."""
    logs = tmp_path / "rocm_tui" / "sessions"
    logs.mkdir(parents=True)
    for at in range(4):
        lines = "".join(f"{encode(event)}\n" for event in events(at, 5, ends=at > 0))
        (logs / f"box-{1000 + at}-1700000000-{at:08x}.jsonl").write_text(lines)
    (logs / "box-9-1700000000-00000009.jsonl").write_text('{"event":"session_started"}\n')
    (tmp_path / "train.log").write_text("AUTOTUNE mm(8x8, 8x8)\n  mm 0.0123 ms 100.0% \n")
    return tmp_path


def test_a_part_comes_back_as_it_was(folder: Path) -> None:
    part, problems = read_part(Layout(folder), "A", str(folder), [])
    again, told = unpacked_part(packed_part(part, problems))
    assert len(part.rows) > 15 and problems and part.took
    assert again == part and list(told) == list(problems)
    assert [row.tuning.choices for row in again.rows] == [row.tuning.choices for row in part.rows]
    empty, _ = unpacked_part(packed_part(type(part)("nothing", ()), []))
    assert empty == type(part)("nothing", ())


def test_tunings_stay_packed_in_whatever_order(folder: Path) -> None:
    part, _ = read_part(Layout(folder), "A", str(folder / "rocm_tui" / "sessions"), [])
    turned = type(part)(part.label, part.rows[::-1])
    again, _ = unpacked_part(packed_part(turned, []))
    assert {type(row.tuning) for row in again.rows} == {PackedTuning}
    assert again == turned


def test_another_process_tells_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("threading.active_count", lambda: 1)
    here = read_part(Layout(folder), "B", str(folder), [])
    with Ahead(Layout(folder), str(folder), []) as ahead:
        part, problems = ahead.part() or ((), ())
        assert (part, list(problems)) == (here[0], list(here[1]))
        assert ahead.part() is None, "it was asked for already"
    with Ahead(Layout(folder), str(folder / "rocm_tui" / "no such"), []) as ahead:
        assert ahead.part() is None
    damaged = folder / "pins.json"
    damaged.write_text('{"format": "rocm-tui pins"')
    with Ahead(Layout(folder), str(folder), [str(damaged)]) as ahead:
        assert ahead.part() is None, "who asks here is told why"
