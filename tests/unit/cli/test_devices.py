"""What commands print of a box with several devices, and of choices with line breaks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.problem import TuningKey
from backend.pins.state import DeviceStatus, PinStatus
from backend.pins.store import PinStore
from rocm_tui.cli.entry import main
from rocm_tui.ingest import devices
from rocm_tui.ingest.formats.cache_file import parse
from rocm_tui.json_output import builtins_of
from rocm_tui.render.pins import PinJson, pin_effect, state_on, state_text
from rocm_tui.session.model import Model
from tests.support.device_modules import ATEN, MM, SYSTEM, write_box
from tests.support.subgraphs import decompose_k

APART = {0: (0.010, 0.012), 1: (0.013, 0.011)}


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    devices._hashes_of.cache_clear()


@pytest.fixture
def called(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command in this process; what it prints."""

    def call(*words: str, code: int = 0) -> str:
        assert main(list(words)) == code
        return capsys.readouterr().out

    return call


def test_ls_has_a_row_for_a_problem(tmp_path: Path, called: Any) -> None:
    write_box(tmp_path, APART)
    _, line = called("ls", "--cache-dir", str(tmp_path)).splitlines()
    assert "cuda:0-1" in line and "differs (2)" in line and "triton_mm-" not in line
    assert "?2.00×" in line, "ATen's time may be another device's"


def test_ls_names_the_choice_that_all_devices_use(tmp_path: Path, called: Any) -> None:
    hashes = write_box(tmp_path, {0: (0.010, 0.012), 1: (0.011, 0.013)})
    _, line = called("ls", "--cache-dir", str(tmp_path)).splitlines()
    assert "differs" not in line and hashes[0][0][:18] in line


def test_json_keeps_its_fields_and_has_each_device(tmp_path: Path, called: Any) -> None:
    hashes = write_box(tmp_path, APART)
    (row,) = json.loads(called("ls", "--json", "--cache-dir", str(tmp_path)))["tunings"]
    assert row["device"] == "cuda" and row["in_use"] == hashes[0][0] and row["num_choices"] == 3
    told = [(each["device"], each["index"], each["in_use"], each["ms"]) for each in row["devices"]]
    assert told == [("cuda:0", 0, hashes[0][0], 0.010), ("cuda:1", 1, hashes[1][1], 0.011)]
    assert row["devices"][1]["identity"] == hashes[0][1]
    shared = {c["hash"]: c["shared"] for c in row["devices"][1]["choices"]}
    assert shared == {hashes[1][0]: False, hashes[1][1]: False, ATEN: True}


def test_json_of_one_device_has_no_list(tmp_path: Path, called: Any) -> None:
    write_box(tmp_path, {0: APART[0]})
    (row,) = json.loads(called("ls", "--json", "--cache-dir", str(tmp_path)))["tunings"]
    assert row["devices"] == []


def test_show_has_a_section_for_each_device(tmp_path: Path, called: Any) -> None:
    hashes = write_box(tmp_path, APART)
    id = json.loads(called("ls", "--json", "--cache-dir", str(tmp_path)))["tunings"][0]["id"]
    text = called("show", id, "--cache-dir", str(tmp_path))
    first, second = text.index("\ncuda:0\n"), text.index("\ncuda:1\n")
    assert text.index(hashes[0][1]) < second < text.index(hashes[1][0])
    assert first < text.index(hashes[0][1])
    assert "device which tuned last" in text and "fastest" not in text[:first]
    one = called("show", id, hashes[1][1], "--cache-dir", str(tmp_path))
    assert "cuda:1" in one and hashes[1][0] not in one


def test_a_filter_finds_the_device_and_the_choice_of_any(tmp_path: Path, called: Any) -> None:
    hashes = write_box(tmp_path, APART)
    where = ("--cache-dir", str(tmp_path))
    for words in ("device:cuda:1", f"winner:{hashes[1][1]}"):
        assert "cuda:0-1" in called("ls", "--filter", words, *where)
    called("ls", "--filter", "device:cuda:2", *where, code=1)


def test_pin_and_pins_say_on_which_devices(tmp_path: Path, called: Any) -> None:
    hashes = write_box(tmp_path, APART)
    where = ("--cache-dir", str(tmp_path))
    id = json.loads(called("ls", "--json", *where))["tunings"][0]["id"]
    assert called("pin", id, "#2", "--dry-run", *where).endswith("; for devices 0-1\n")
    plan = json.loads(called("pin", id, "#2", "--dry-run", "--json", *where))
    assert plan["devices"] == [0, 1]
    assert ", active on 0-1: " in called("pin", id, hashes[1][1], *where)
    assert "active on 0-1" in called("pins", *where)
    (pin,) = json.loads(called("pins", "--json", *where))["pins"]
    assert pin["state"] == "active"
    assert pin["devices"] == [{"index": 0, "holds": True}, {"index": 1, "holds": True}]
    assert "active on 0-1" in called("ls", *where)


def test_the_state_says_where_a_pin_does_not_hold(tmp_path: Path) -> None:
    write_box(tmp_path, APART)
    store = PinStore(Layout(tmp_path))
    store.pin(None, TuningKey("mm", MM, "highest"), ATEN)
    pin = store.pins()[0]
    on = tuple(DeviceStatus(index, index != 3) for index in range(4))
    unproven = PinStatus(pin, "unproven", "on 3 it was tuned without a time for it", devices=on)
    assert state_text(unproven) == "unproven on 3"
    assert [state_on(unproven, index) for index in (0, 3)] == ["active", "unproven"]
    assert builtins_of(PinJson.of(unproven))["devices"][3] == {"index": 3, "holds": False}
    active = PinStatus(pin, "active", devices=on[:3])
    assert state_text(active) == "active on 0-2"
    assert state_text(PinStatus(pin, "active", devices=on[:1])) == "active"
    assert state_text(PinStatus(pin, "drifted", devices=on)) == "drifted"


def test_the_effect_of_a_pin_is_told_of_each_device(tmp_path: Path) -> None:
    hashes = write_box(tmp_path, APART)
    path = tmp_path / "cache" / SYSTEM
    model = Model()
    model.apply(parse(path.read_bytes(), str(path)))
    (row,) = model.listed()
    assert pin_effect(row, row.tuning.choices[0]) == [
        "cuda:0 uses it already; the pin keeps it so.",
        f"cuda:1: ~13.0 µs instead of ~11.0 µs with {hashes[1][1][:18]}.",
    ]
    unknown = Choice(hash="triton_mm-caa", ms=1.0)
    assert pin_effect(row, unknown)[0] == "cuda:0 was tuned without it, and keeps what it uses."


def test_no_line_break_of_a_hash_is_printed(tmp_path: Path, called: Any) -> None:
    path = tmp_path / "cache" / SYSTEM
    path.parent.mkdir()
    times = {decompose_k(2): 0.01, decompose_k(4): 0.02, "mm-c1": 0.03}
    path.write_text(json.dumps({"system": {}, "cache": {"mm": {MM: {"highest": times}}}}))
    where = ("--cache-dir", str(tmp_path))
    heading, line = called("ls", *where).splitlines()
    assert heading.startswith("id") and "decompose_k_mm_2_split-" in line
    id = line.split()[0]
    shown = called("show", id, *where)
    assert sum("decompose_k" in each for each in shown.splitlines()) == 3  # one is the fastest
    assert "arg0_1" not in shown
    (text,) = called("ls", "--json", *where).splitlines()
    hashes = [choice["hash"] for choice in json.loads(text)["tunings"][0]["choices"]]
    assert hashes[0] == decompose_k(2)
    (pinned,) = called("pin", id, "decompose_k_mm_4_split", *where).splitlines()
    assert "active" in pinned
    assert len(called("pins", *where).splitlines()) == 2
