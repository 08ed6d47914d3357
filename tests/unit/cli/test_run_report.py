"""The three lines at the end of a run count what the screen then lists."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice
from backend.model.events import (
    ChoiceSelected,
    ChoiceTimed,
    GraphCompiled,
    SessionEnded,
    SessionStarted,
    TuningStarted,
)
from backend.model.graph import Graph, TuningUse
from backend.model.session import Session
from rocm_tui.cli.entry import main
from rocm_tui.cli.run import _report
from rocm_tui.launch.run import FinishedRun, RunOptions
from tests.support.screen_lab import inputs


def write(
    root: Path,
    *asked: tuple[int, str],
    times: tuple[float, ...] = (),
    modes: tuple[str, ...] | None = None,
) -> Layout:
    """A run that tuned an mm of each size and selected the choice in that way."""
    layout = Layout(root)
    session = Session("run-9", "node", 9, started=1.8e9, modes=modes)
    writer = EventWriter(layout, session)
    writer.write(SessionStarted(session))
    hashes = ["mm-bb", "mm-cc"][: max(1, len(times))]
    for n, (m, by) in enumerate(asked, start=1):
        shapes, strides = ((m, 64), (64, 64)), ((64, 1), (64, 1))
        kinds = ("torch.float32",) * 2
        key = "mm", inputs(m), "highest"
        choices = tuple(Choice(hash.replace("-", "_"), hash) for hash in hashes)
        writer.write(TuningStarted(n, 1.8e9, *key, shapes, strides, kinds, "cpu", choices))
        for hash, ms in zip(hashes, times, strict=False):
            writer.write(ChoiceTimed(n, hash, ms))
        writer.write(ChoiceSelected(n, 1.8e9, "mm-bb", by, None, None))
    writer.write(SessionEnded(1.8e9))
    writer.close()
    return layout


def lines(
    layout: Layout,
    *,
    terminal: bool = True,
    env: dict[str, str] | None = None,
    options: RunOptions | None = None,
) -> list[str]:
    command = ["python", "train.py"]
    options = options or RunOptions()
    finished = FinishedRun("run", command, options, layout, env or {}, 0.0, 0, terminal, None)
    return list(_report(finished))


def test_an_answer_from_the_cache_is_no_other_tuning(tmp_path: Path) -> None:
    layout = write(tmp_path, (8, "timing"), (16, "only"), (8, "cache"), (8, "cache"))
    assert lines(layout)[0] == f"2 tunings recorded in {layout.sessions}"


def test_an_answer_from_the_cache_alone_is_one(tmp_path: Path) -> None:
    layout = write(tmp_path, (8, "cache"), (8, "cache"), (16, "pin"))
    assert lines(layout)[0].startswith("2 tunings recorded in ")


def test_a_problem_that_was_tuned_twice_is_two(tmp_path: Path) -> None:
    layout = write(tmp_path, (8, "timing"), (8, "timing"))
    assert lines(layout)[0].startswith("2 tunings recorded in ")


def test_one_choice_each_is_nothing_to_tune(tmp_path: Path) -> None:
    alone = write(tmp_path / "a", (8, "only"), (16, "only"))
    assert lines(alone)[1:] == [
        "one choice each: nothing to tune",
        f"next: rocm-tui ls --cache-dir {alone.root}",
    ]
    beside = write(tmp_path / "b", (8, "timing"), (16, "timing"), times=(0.0123456, 0.0223456))
    assert "one choice" not in lines(beside)[1]


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ((0.0123456, 0.0124567), "mm_bb and mm_cc are too close to compare (one timing each)"),
        ((0.0123456, 0.0246912), "mm_bb is ahead of mm_cc by 100 % (one timing each)"),
        ((8.0, 12.0), "times that cannot be right in 1 tuning, such as mm 8×64 · 64×64 f32 ("),
    ],
)
def test_a_single_timing_is_never_called_a_win(
    tmp_path: Path, times: tuple[float, float], text: str
) -> None:
    layout = write(tmp_path, (8, "timing"), times=times)
    _, look, command = lines(layout)
    assert look.startswith("worth a look: ") and text in look
    assert command.startswith("next: rocm-tui measure ") and str(layout.root) in command


def test_a_pipe_of_another_rank_gets_nothing(tmp_path: Path) -> None:
    layout = write(tmp_path, (8, "only"))
    assert len(lines(layout, terminal=False)) == 3
    assert lines(layout, terminal=False, env={"RANK": "1"}) == []
    assert len(lines(layout, terminal=False, env={"RANK": "0"})) == 3
    assert lines(Layout(tmp_path / "none"), terminal=False) == []


def test_a_program_that_set_another_cache_dir_is_recorded_there(tmp_path: Path) -> None:
    layout, other = Layout(tmp_path / "run"), tmp_path / "other"
    session = Session("run-9", "node", 9, started=1.8e9, cache_dir=str(layout.root))
    writer = EventWriter(layout, session)
    for place in (layout.root, other):
        writer.write(SessionStarted(replace(session, cache_dir=str(place))))
    writer.write(SessionEnded(1.8e9))
    writer.close()
    assert lines(layout) == [
        f"nothing was recorded here: the program set TORCHINDUCTOR_CACHE_DIR to {other}",
        "worth a look: what is recorded there",
        f"next: rocm-tui ls --cache-dir {other}",
    ]


def test_the_command_that_tunes_is_complete(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    session = Session("run-9", "node", 9, started=1.8e9)
    writer = EventWriter(layout, session)
    writer.write(SessionStarted(session))
    writer.write(GraphCompiled(1, 1.8e9, Graph("1dabc8d", max_autotune=False)))
    writer.close()
    first, look, command = lines(layout, options=RunOptions(cache_dir=tmp_path))
    assert first == f"0 tunings recorded in {layout.sessions}, with 1 compiled graph"
    assert look == "worth a look: max_autotune was off for it"
    assert command == (
        f"next: rocm-tui run --cache-dir {tmp_path} --max-autotune -- python train.py"
    )


def test_a_graph_from_inductors_cache_is_why_nothing_was_tuned(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    session = Session("run-9", "node", 9, started=1.8e9)
    writer = EventWriter(layout, session)
    writer.write(SessionStarted(session))
    uses = (TuningUse("mm", inputs(8), "highest", 1, "mm-aa"),)
    writer.write(GraphCompiled(1, 1.8e9, Graph("1dabc8d", tunings=uses, max_autotune=True)))
    writer.close()
    first, look, _ = lines(layout)
    assert first == f"0 tunings recorded in {layout.sessions}, with 1 compiled graph"
    text = "Inductor loaded 1 compiled graph from its cache, which tunes nothing again"
    assert look == f"worth a look: {text}"


@pytest.mark.parametrize("modes", [None, (), ("origami", "pipelined")])
def test_modes_of_autotuning_are_shown_where_one_was_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], modes: tuple[str, ...] | None
) -> None:
    write(tmp_path, (8, "timing"), times=(1.0, 2.0), modes=modes)
    where = ["--cache-dir", str(tmp_path)]
    assert main(["ls", "--json", *where]) == 0
    (tuning,) = json.loads(capsys.readouterr().out)["tunings"]
    assert main(["show", tuning["id"], *where]) == 0
    assert ("modes      origami, pipelined\n" in capsys.readouterr().out) == bool(modes)
    assert main(["sessions", *where]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert ("modes" in heading) == ("origami, pipelined" in line) == bool(modes)
    assert main(["sessions", "--json", *where]) == 0
    (session,) = json.loads(capsys.readouterr().out)["sessions"]
    assert session["modes"] == (None if modes is None else list(modes))
