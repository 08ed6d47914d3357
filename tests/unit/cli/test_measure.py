"""`rocm-tui measure` on a busy machine: a question at a terminal, a warning elsewhere."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import MeasuredChoice, Measurement, Verdict
from backend.model.events import TuningMeasured
from backend.model.session import Session
from rocm_tui.actions.measure import Measuring
from rocm_tui.actions.sources import pick_tuning
from rocm_tui.cli.entry import main
from rocm_tui.jobs import load
from rocm_tui.jobs.load import Load
from rocm_tui.session.stats import ranked
from tests.support.screen_lab import write_cache

WARNING = "load 20 on 2 cores: the result will probably be unclear"


class Terminal(io.StringIO):
    """A stream that says that a person is there."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache on a busy machine."""
    monkeypatch.delenv(load.BUSY_LOAD)
    monkeypatch.setattr(load, "read_load", lambda: Load(20.0, 2, 71.5))
    write_cache(tmp_path, 8)
    return tmp_path


def measure(cache: Path, *options: str) -> int:
    """Measure with a Python that is none, so that going on is an error of one line."""
    where = ("--cache-dir", str(cache), "--python", str(cache / "no-python"))
    return main(["measure", "713276b", *where, *options])


@pytest.mark.parametrize("answer", ["n\n", "\n", ""])
def test_a_person_may_say_no(cache: Path, answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert measure(cache) == 1
    assert sys.stderr.getvalue() == f"{WARNING}. Measure anyway? [y/N] "  # type: ignore[attr-defined]


@pytest.mark.parametrize(("answer", "options"), [("y\n", ()), ("", ("--yes",))])
def test_a_person_may_say_yes(
    cache: Path, answer: str, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", Terminal())
    measure(cache, *options)
    said = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert WARNING in said and "no program that can be run" in said
    assert ("Measure anyway?" in said) == (not options)


def test_without_a_terminal_there_is_a_warning_and_no_question(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(cache, "--json")
    said = capsys.readouterr()
    assert said.err.splitlines()[0] == f"rocm-tui: {WARNING}"
    assert "no program that can be run" in said.err


def test_what_cannot_be_measured_is_said_before_the_question(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measure(cache, "bad-dd", "nowhere")
    assert WARNING not in capsys.readouterr().err


def test_a_tuning_of_the_cpu_is_not_measured_on_a_gpu(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert measure(cache, "--device", "0") == 2
    assert "713276b was tuned on the CPU" in capsys.readouterr().err
    measure(cache, "--device", "cpu")
    assert "no program that can be run" in capsys.readouterr().err


def test_the_pin_that_is_recommended_is_one_of_the_same_cache(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = Layout(cache)
    row = pick_tuning(layout, (), "713276b")[1]
    taken, best = ranked(row.tuning)[:2]
    assert taken.hash is not None and best.hash is not None
    verdicts: dict[str, tuple[float, Verdict]]
    verdicts = {best.hash: (1.0, "faster"), taken.hash: (1.5, "slower")}
    choices = tuple(
        MeasuredChoice(hash, 1.0, 1.0, 1.0, 0.01, 20, ratio, ratio - 0.01, ratio + 0.01, verdict)
        for hash, (ratio, verdict) in verdicts.items()
    )
    key = row.tuning.key
    found = Measurement(key.op, key.inputs, key.precision, 1.0, choices, rounds=20, seconds=1.0)

    def once(job: Measuring) -> Measurement:
        writer = EventWriter(layout, Session("worker"))
        writer.write(TuningMeasured(found))
        writer.close()
        return found

    monkeypatch.setattr(Measuring, "once", once)
    where = ("--cache-dir", str(cache))
    assert main(["measure", row.id, "--yes", *where, "--python", sys.executable]) == 0
    assert main(["show", row.id, *where]) == 0
    words = capsys.readouterr().out.split()
    command = f"rocm-tui pin {row.id} {best.hash} --cache-dir {cache}".split()
    starts = [n for n, word in enumerate(words) if words[n : n + len(command)] == command]
    assert len(starts) == 2, "of `measure` and of `show`"
