"""What a run says that it recorded is what the screen then lists."""

from __future__ import annotations

from pathlib import Path

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.events import ChoiceSelected, SessionStarted, TuningStarted
from backend.model.session import Session
from rocm_tui.launch.run import recorded, summary
from tests.support.screen_lab import inputs


def write(root: Path, *asked: tuple[int, str]) -> Layout:
    """A run that asked for an mm of each size and took the choice in that way."""
    layout = Layout(root)
    session = Session("run-9", "node", 9, started=1.8e9)
    writer = EventWriter(layout, session)
    writer.write(SessionStarted(session))
    for n, (m, by) in enumerate(asked, start=1):
        shapes, strides = ((m, 64), (64, 64)), ((64, 1), (64, 1))
        kinds = ("torch.float32",) * 2
        key = "mm", inputs(m), "highest"
        writer.write(TuningStarted(n, 1.8e9, *key, shapes, strides, kinds, "cpu", ()))
        writer.write(ChoiceSelected(n, 1.8e9, "mm-bb", by, None, None))
    writer.close()
    return layout


def test_what_was_asked_for_again_is_no_other_tuning(tmp_path: Path) -> None:
    layout = write(tmp_path, (8, "timing"), (16, "only"), (8, "cache"), (8, "cache"))
    assert summary(recorded(layout, "run", 0.0), layout).startswith("2 tunings recorded in ")


def test_what_came_from_a_cache_alone_is_one(tmp_path: Path) -> None:
    layout = write(tmp_path, (8, "cache"), (8, "cache"), (16, "pin"))
    assert summary(recorded(layout, "run", 0.0), layout).startswith("2 tunings recorded in ")


def test_what_was_tuned_twice_is_two(tmp_path: Path) -> None:
    layout = write(tmp_path, (8, "timing"), (8, "timing"))
    assert summary(recorded(layout, "run", 0.0), layout).startswith("2 tunings recorded in ")


def test_one_choice_each_is_nothing_to_tune(tmp_path: Path) -> None:
    alone = write(tmp_path / "a", (8, "only"), (16, "only"))
    assert summary(recorded(alone, "run", 0.0), alone).endswith(
        ": one choice each, nothing to tune"
    )
    beside = write(tmp_path / "b", (8, "only"), (16, "timing"))
    assert "one choice" not in summary(recorded(beside, "run", 0.0), beside)
