"""Which sources are loaded for a person's words, and what is said of those that are not there."""

from __future__ import annotations

import io
import json
import math
import sys
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.model.session import Fault
from backend.pins.store import PinStore
from backend.sharing.share import Machine, PinExport, SharedPin, share_text
from rocm_tui.actions.sources import (
    cache_dir_of,
    is_export,
    known_graphs,
    load_model,
    load_named,
    pick_row,
    pick_tuning,
    read_history_files,
    read_part,
    tunings_of_export,
    unread,
)
from rocm_tui.errors import NoSuchSource, NoSuchTuning
from rocm_tui.session.model import Model
from rocm_tui.session.sessions import NoSuchSession
from tests.support.graph_log import inputs, tune, writer_of
from tests.support.improve_lab import GRAPH, write_graph
from tests.support.log_lab import MM_LOG

SYSTEM = "5" * 64


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A cache dir with two sessions, each of one tuning."""
    layout = Layout(tmp_path / "cache")
    for id, m in (("aaaa1111", 8), ("bbbb2222", 16)):
        writer = writer_of(layout.root, id)
        tune(writer, 1, m, 2.0, 1.0)
        writer.close()
    return layout


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "logs" / "train.log"
    path.parent.mkdir()
    path.write_text(MM_LOG)
    return str(path)


def sizes(model: Model) -> set[int]:
    return {row.tuning.shapes[0][0] for row in model.rows()}


def test_sources_beside_the_cache_dir_must_be_there(layout: Layout, log: str) -> None:
    assert sizes(load_model(layout)) == {8, 16}
    assert sizes(load_model(layout, [log])) == {64}
    assert sizes(load_model(layout, also=[log])) == {8, 16, 64}
    for words in ({"also": ["/none/a.log"]}, {"paths": [log], "also": ["/none/a.log"]}):
        with pytest.raises(NoSuchSource, match=r"/none/a\.log"):
            load_model(layout, **words)
    model = load_model(layout, ["/none/a.log", "/none/b.log"])
    assert [problem.source for problem in unread(model, ["/none/b.log"])] == ["/none/b.log"]
    with pytest.raises(NoSuchSource, match=r"/none/a\.log"):
        pick_tuning(layout, ["/none/a.log"], "x")


def test_pins_that_cannot_be_read_are_a_problem_of_the_model(layout: Layout) -> None:
    layout.pins.write_text("no JSON")
    problems = load_model(layout).problems
    assert [problem.source for problem in problems] == [str(layout.pins)]


def test_a_tuning_is_named_by_the_beginning_of_its_id(layout: Layout, log: str) -> None:
    model, row = pick_tuning(layout, [log], load_model(layout).rows()[0].id[:4])
    assert row.tuning.shapes[0][0] in (8, 16) and sizes(model) == {8, 16, 64}
    with pytest.raises(NoSuchTuning, match="fffffff") as raised:
        pick_row(model, "fffffff")
    assert "Not read" not in str(raised.value)
    model.apply([Fault("/a", "first", 3), Fault("/b", "in /b:7: said", 7), Fault("/b", "last", 8)])
    with pytest.raises(NoSuchTuning, match=r"fffffff.* Not read: in /b:7: said$"):
        pick_row(model, "fffffff")
    model.apply([Fault("/c", "lost", 4)])
    with pytest.raises(NoSuchTuning, match=r"Not read: /c:4: lost$"):
        pick_row(model, "fffffff")


def test_paths_and_sessions_may_be_named(layout: Layout, log: str) -> None:
    def named(*texts: str) -> tuple[set[int], list[str]]:
        _, rows, paths = load_named(layout, texts)
        return {row.tuning.shapes[0][0] for row in rows}, paths

    root = str(layout.root)
    assert named() == ({8, 16}, [])
    assert named(log) == ({64}, [log])
    assert named("aaaa1111") == ({8}, [root])
    assert named("aaaa1111", log) == ({8, 64}, [log, root])
    assert named("bbbb", str(Path(log).parent)) == ({16, 64}, [str(Path(log).parent), root])
    assert named("bbbb", f"{Path(log).parent}/")[0] == {16, 64}
    assert named("/none/a.log") == (set(), ["/none/a.log"])
    with pytest.raises(NoSuchSession, match=r"no session of .* begins so.*did you mean"):
        named("aaab1111")


def test_a_part_of_a_comparison_is_a_source_or_a_session(
    layout: Layout, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, problems = read_part(layout, log, [])
    assert len(part.rows) == 1 and not problems
    part, _ = read_part(layout, "aaaa1111", [])
    assert len(part.rows) == 1
    part, _ = read_part(layout, str(layout.root), [log])
    assert len(part.rows) == 3 and part.label == f"{layout.root} + {log}"
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(MM_LOG.encode())))
    part, _ = read_part(layout, "-", [])
    assert part.label == "-"
    with pytest.raises(NoSuchSession, match=r"^A: 'cccc'"):
        read_part(layout, "cccc", [], "A: ")
    for text in (log, "aaaa1111"):
        with pytest.raises(NoSuchSource, match="/none"):
            read_part(layout, text, ["/none"])


def test_an_export_is_a_part_of_its_own_kind(layout: Layout, log: str, tmp_path: Path) -> None:
    pin = SharedPin("mm", inputs(8), "highest", "mm-1", "mm", Machine())
    file = tmp_path / "pins.json"
    file.write_text(share_text(PinExport((pin,))))
    assert is_export(file) and not is_export(Path(log)) and not is_export(tmp_path / "none")
    padded = tmp_path / "padded.json"
    padded.write_text("\n  " + file.read_text())
    assert is_export(padded)
    padded.write_text("x" + file.read_text())
    assert not is_export(padded)
    padded.write_text("{" + " " * 5000 + '"rocm-tui pins"')
    assert not is_export(padded)
    part, _ = read_part(layout, str(file), [])
    assert len(part.rows) == 1
    part, _ = read_part(layout, str(file), [log])
    assert len(part.rows) == 2
    part, _ = read_part(layout, "aaaa1111", [str(file)])
    assert len(part.rows) == 1


def test_pins_of_an_export_are_tunings_with_their_times() -> None:
    pin = SharedPin(
        "mm\x1b", inputs(8), "highest", "tri-0", "triton\x1b[31m", Machine(),
        timings={"highest": {"mm-1": 2.0, "tri-0": 1.0, "tri-1": 1.0, "bad": math.inf}, "high": {}},
        variants={"0": "tri-0", "1": "tri-1"}, when=7.0,
    )  # fmt: skip
    first, second = tunings_of_export(PinExport((pin,)), "/p.json")
    assert (first.uid, second.uid) == ("/p.json#0", "/p.json#1") and first.tuning.when == 7.0
    tuning = first.tuning
    assert (tuning.precision, second.tuning.precision) == ("highest", "high")
    assert tuning.shapes == ((8, 32), (32, 64)) and tuning.strides == ((32, 1), (64, 1))
    assert tuning.dtypes == ("torch.float32",) * 2 and tuning.device == "cpu"
    assert tuning.selected == "tri-0" and tuning.sources == ("/p.json",)
    assert {choice.hash: choice.ms for choice in tuning.choices} == {
        "tri-0": 1.0, "mm-1": 2.0, "bad": None,
    }  # fmt: skip
    assert tuning.num_choices == 3 and second.tuning.num_choices is None
    best, *others = tuning.choices
    assert best.identity == "tri-0" and best.name is not None and "\x1b" not in best.name
    assert all(choice.name is None and choice.identity is None for choice in others)
    assert [choice.failed for choice in tuning.choices] == [False, False, True]
    assert "\x1b" not in tuning.op
    (odd,) = tunings_of_export(
        PinExport((SharedPin("triton", "add[1]", "", "c-1", "c", Machine()),)), "/p.json"
    )
    assert odd.tuning.shapes == () and odd.tuning.device is None and odd.tuning.precision == ""


def test_the_history_has_pins_and_the_systems_of_cache_files(layout: Layout, log: str) -> None:
    layout.autotune.mkdir(exist_ok=True)
    cache = {"mm": {inputs(8): {"highest": {"mm-1": 2.0, "tri-1": 1.0}}}}
    version = {"triton": "3.6.0" + "a" * 64 + "-b", "hip": "7.1"}
    header = {"hash": SYSTEM, "version": version}
    (layout.autotune / SYSTEM).write_text(json.dumps({"system": header, "cache": cache}))
    elsewhere = layout.root.parent / "elsewhere"
    elsewhere.write_text((layout.autotune / SYSTEM).read_text().replace("7.1", "6.4"))
    PinStore(layout).pin(None, TuningKey("mm", inputs(8), "highest"), "mm-1")
    other = "6" * 64
    files = read_history_files(layout, {SYSTEM: "", other: str(elsewhere), "no hash": log})
    assert [entry.what for entry in files.pins] == ["pin"]
    assert {name: v.hip for name, v in files.versions.items()} == {SYSTEM: "7.1", other: "6.4"}
    assert files.versions[SYSTEM].triton == "3.6.0"
    layout.pins.write_text("no JSON")
    assert read_history_files(layout, {}).pins == ()


def test_all_graphs_of_a_cache_dir_are_known(tmp_path: Path) -> None:
    layout = write_graph(tmp_path / "cache")
    assert [row.id for row in known_graphs(layout)] == [GRAPH]
    with pytest.raises(NoSuchSource):
        known_graphs(layout, ["/none"])


@pytest.mark.parametrize(
    ("folder", "place", "own"),
    [
        ("cache", "", True),
        ("rocm_tui", "", True),
        ("other", "", False),
        ("cache", "cache/hash", True),
        ("rocm_tui", "rocm_tui/sessions/1.jsonl", True),
        ("cache", "1.jsonl", False),
        ("rocm_tui", "sessions/1.jsonl", False),
    ],
)
def test_the_pins_of_a_source_are_those_of_its_cache_dir(
    tmp_path: Path, folder: str, place: str, own: bool
) -> None:
    root, ours = tmp_path / "a", Layout(tmp_path / "ours")
    (root / folder).mkdir(parents=True)
    assert cache_dir_of(root / place, ours) == (Layout(root) if own else ours)
