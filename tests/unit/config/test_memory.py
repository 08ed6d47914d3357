"""What is remembered: of two programs at once nothing is lost, and no file stops the program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from backend.disk import safe
from rocm_tui.config.memory import MOST_WORKSPACES, Memory

WRITER = """
import sys
from pathlib import Path
from rocm_tui.config.memory import Memory
memory, name = Memory(Path(sys.argv[1])), sys.argv[2]
memory.recall("sort", "")
for at in range(20):
    memory.add("history", f"{name}{at}", most=100)
    memory.put("filters", f"{name}{at}", "op:mm")
    memory.remember(name, at)
    memory.workspace([name]).remember("sort", str(at))
    memory.flush()
assert not memory.trouble, memory.trouble
"""


def test_what_is_remembered_is_there_the_next_time(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state.json"
    memory = Memory(path)
    assert memory.recall("sort", "newest") == "newest" and not path.exists()
    memory.remember("sort", "lead")
    memory.remember("split", 0.4)
    memory.add("history", "a", most=2)
    memory.add("history", "b", most=2)
    memory.add("history", "a", most=2)
    memory.add("history", "c", most=2)
    memory.put("filters", "slow", "gain<1")
    memory.put("filters", "gone", "x")
    memory.put("filters", "gone", None)
    memory.flush()
    again = Memory(path)
    for seen in (memory, again):
        assert seen.recall("sort", "newest") == "lead" and seen.recall("split", 0.5) == 0.4
        assert seen.recall("history", ["none"]) == ["c", "a"]
        assert seen.recall("filters", {"a": "b"}) == {"slow": "gain<1"}
    assert [one.name for one in path.parent.iterdir() if not one.name.endswith(".lock")] == [
        "state.json"
    ]


def test_two_programs_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    children = [subprocess.Popen([sys.executable, "-c", WRITER, str(path), name]) for name in "ab"]
    assert [child.wait(60) for child in children] == [0, 0]
    known = json.loads(path.read_text())
    wanted = {f"{name}{at}" for name in "ab" for at in range(20)}
    assert {*known["history"]} == wanted == {*known["filters"]}
    assert (known["a"], known["b"]) == (19, 19)
    assert [space["sort"] for space in known["workspaces"].values()] == ["19", "19"]


def test_each_set_of_sources_has_its_own_order(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    memory = Memory(path)
    memory.workspace(["/a.log", "/cache"]).remember("sort", "lead")
    memory.workspace(["/a.log", "/cache"]).remember("fold", False)
    memory.workspace(["/b.log", "/cache"]).remember("sort", "op")
    memory.flush()
    for seen in (memory, Memory(path)):
        same = seen.workspace(["/cache", "/x/../a.log", "/a.log"])
        assert same.recall("sort", "age") == "lead" and same.recall("fold", True) is False
        assert seen.workspace(["/b.log", "/cache"]).recall("sort", "age") == "op"
        assert seen.workspace(["/b.log", "/cache"]).recall("fold", True) is True
        assert seen.workspace(["/a.log"]).recall("sort", "age") == "age"
        assert seen.workspace(["/a\udcff.log"]).recall("sort", "age") == "age"
        assert seen.recall("sort", "age") == "age"


def test_what_was_changed_longest_ago_is_forgotten_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    memory = Memory(path)
    for number in range(MOST_WORKSPACES + 3):
        monkeypatch.setattr("time.time", lambda number=number: 1.8e9 + number)
        memory.workspace([f"/{number}"]).remember("sort", "lead")
    memory.workspace(["/3"]).remember("sort", "op")
    memory.workspace(["/new"]).remember("sort", "lead")
    memory.flush()
    assert len(json.loads(path.read_text())["workspaces"]) == MOST_WORKSPACES
    kept = [memory.workspace([f"/{at}"]).recall("sort", "") for at in range(6)]
    assert kept == ["", "", "", "op", "", "lead"]


@pytest.mark.parametrize(
    "space", ['"x"', "[]", '{"HERE": 3}', '{"HERE": {"sort": {}, "changed": "long"}, "y": null}']
)
def test_workspaces_of_another_kind_are_not_recalled(tmp_path: Path, space: str) -> None:
    path = tmp_path / "state.json"
    here = Memory(path).workspace(["/a"])
    path.write_text(f'{{"workspaces": {space.replace("HERE", here.name)}, "fold": true}}')
    memory = Memory(path)
    assert memory.workspace(["/a"]).recall("sort", "age") == "age"
    memory.workspace(["/b"]).remember("sort", "lead")
    memory.flush()
    assert not memory.trouble
    assert Memory(path).workspace(["/b"]).recall("sort", "age") == "lead"
    assert json.loads(path.read_text())["fold"] is True


def test_what_is_of_another_kind_is_not_recalled(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text('{"sort": 3, "split": "x", "history": [1], "filters": [], "fold": 1}')
    memory = Memory(path)
    assert memory.recall("sort", "newest") == "newest"
    assert memory.recall("split", 0.5) == 0.5
    assert memory.recall("history", [""]) == [""]
    assert memory.recall("filters", {"a": "b"}) == {"a": "b"}
    assert memory.recall("fold", True) is True


def test_what_a_busy_lock_kept_from_being_written_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    memory = Memory(path)
    memory.remember("sort", "lead")
    memory.flush()
    monkeypatch.setattr("rocm_tui.config.memory._PATIENCE", 0.05)
    with safe.locked(tmp_path, path, locks=tmp_path):
        memory.put("filters", "slow", "gain<1")
        while (writer := memory._writer) is not None:  # it gives up at some time
            writer.join()
        memory.flush()
        assert "another process holds" in memory.unwritten
    monkeypatch.setattr("rocm_tui.config.memory._PATIENCE", 60.0)
    memory.flush()
    assert not memory.unwritten and not memory.trouble
    assert Memory(path).recall("filters", {"": ""}) == {"slow": "gain<1"}


def test_a_file_that_is_no_memory_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_text("not ours")
    memory = Memory(path)
    memory.remember("sort", "lead")
    memory.flush()
    assert memory.recall("sort", "") == "lead" and "not JSON" in memory.unwritten
    assert path.read_text() == "not ours"


def test_nowhere_to_write_is_no_reason_to_stop() -> None:
    memory = Memory(Path("/dev/null/rocm-tui/state.json"))
    memory.remember("sort", "lead")
    memory.flush()
    assert memory.trouble and memory.recall("sort", "") == "lead" and not memory.unwritten
