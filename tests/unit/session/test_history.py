"""The history of a problem: logs, a cache file and pins as the program itself writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.model.tuning import Tuning
from backend.pins.store import PinStore
from rocm_tui.actions.sources import load_model, pick_tuning, problem_history
from rocm_tui.cli.entry import main
from rocm_tui.render.history import HISTORY, EventJson, chart, entries
from rocm_tui.session.history import History, Versions, same_problem, system_versions
from rocm_tui.session.views import problem_of
from tests.support.history_lab import DAY, KEY, MONDAY, write_run, write_week
from tests.support.screen_lab import SYSTEM, write_cache


def told(root: Path) -> History:
    layout = Layout(root)
    model, row = pick_tuning(layout, (), KEY.id)
    return problem_history(model, row, layout)


def test_every_event_stands_in_its_order_with_what_it_was_done_with(tmp_path: Path) -> None:
    write_week(tmp_path)
    history = told(tmp_path)
    assert [(e.what, e.label, e.ms) for e in history.events] == [
        ("tuned", "mm_1", 0.14),
        ("tuned", "triton_mm_1", 0.08),
        ("from cache", "triton_mm_1", None),
        ("measured", "mm_1", 0.15),
        ("pin", "mm_1", None),
    ]
    assert not history.undated, "the cache file tells of the second one, which has a time"
    days = [round((e.when - MONDAY) / DAY, 1) for e in history.events if e.when]
    assert days[:4] == [0.0, 1.0, 1.5, 2.0]
    first, second, reuse, measured, pin = history.events
    assert (first.stand.torch, second.stand.torch, reuse.session) == ("2.11.0", "2.13.0", "s3")
    assert measured.session == "m"
    assert (first.stand.triton, first.stand.rocm) == ("3.6.0", "7.1.25")
    assert first.stand.device == "gfx942"
    assert not first.changed and second.changed == ("torch 2.11.0 → 2.13.0",)
    assert not reuse.changed and not measured.changed
    assert first.gain is None, "ATen itself won"
    assert not {event.standing for event in history.events} & {"tied", "unclear"}
    assert second.gain == 2.0 and (measured.low, measured.high) == (0.149, 0.151)
    assert pin.note == "pin by ann: measured faster"


def test_what_no_source_dates_is_said_to_be_undated(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    history = told(tmp_path)
    (event,) = history.undated
    assert not history.events and event.what == "tuned" and event.when is None
    assert event.stand.torch == "", "a cache tells no version of PyTorch"
    assert chart(history, 80, 12) == []
    (entry,) = entries(history)
    assert entry.number is None


def test_what_a_log_alone_tells_of_is_of_no_known_system(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("AUTOTUNE mm(8x64, 64x64)\n  mm 0.02 ms 100.0%\n  triton_mm_1 0.04 ms 50.0%\n")
    layout = Layout(tmp_path)
    model = load_model(layout, also=[str(log)])
    (row,) = model.rows()
    (event,) = problem_history(model, row, layout).undated
    assert (event.label, event.stand.triton, event.stand.rocm) == ("mm", "", "")


def test_what_was_only_taken_from_the_cache_was_not_tuned_then(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    write_run(tmp_path, 3, MONDAY, {}, "2.13.0", "cache")
    history = told(tmp_path)
    assert [(e.what, e.session) for e in history.events] == [("from cache", "s3")]
    assert [(e.what, e.session, e.stand.torch) for e in history.undated] == [("tuned", "", "")]


def test_a_choice_that_no_source_times_was_not_tuned(tmp_path: Path) -> None:
    write_run(tmp_path, 3, MONDAY, {}, "2.13.0", "cache")
    history = told(tmp_path)
    assert [event.what for event in history.events] == ["from cache"] and not history.undated


def test_another_problem_has_another_history(tmp_path: Path) -> None:
    write_cache(tmp_path, 32)
    write_run(tmp_path, 1, MONDAY, {"mm-bb": 0.1}, "2.11.0")
    write_run(tmp_path, 2, MONDAY, {"mm-bb": 9.0}, "2.11.0", dtype="torch.bfloat16")
    history = told(tmp_path)
    assert [event.ms for event in (*history.events, *history.undated)] == [0.1]


@pytest.mark.parametrize("width", [20, 60, 200])
@pytest.mark.parametrize("height", [6, 12, 30])
def test_the_plot_fits_and_shows_winners_versions_and_pins(
    tmp_path: Path, width: int, height: int
) -> None:
    write_week(tmp_path)
    history = told(tmp_path)
    lines = ["".join(text for text, _ in line) for line in chart(history, width, height)]
    assert len(lines) == height and all(len(line.rstrip()) <= width for line in lines)
    drawn = "\n".join(lines[1:-2])
    assert "A" in drawn and "●" in drawn and "┊" in drawn
    letters = [(entry.letter, entry.event.label) for entry in entries(history)]
    assert letters == [("A", "mm_1"), *[("B", "triton_mm_1")] * 2, *[("A", "mm_1")] * 2]


def test_one_kernel_has_one_letter_whatever_processes_call_it(tmp_path: Path) -> None:
    write_run(tmp_path, 1, MONDAY, {"triton_mm-aa": 0.1, "mm-bb": 0.2}, "2.11.0")
    write_run(tmp_path, 2, MONDAY + DAY, {"triton_mm-aa": 0.1, "mm-bb": 0.2}, "2.11.0")
    (log,) = Layout(tmp_path).sessions.glob("node-2-*.jsonl")
    log.write_text(log.read_text().replace("triton_mm_1", "triton_mm_9"))
    found = entries(told(tmp_path))
    assert [e.event.label for e in found] == ["triton_mm_1", "triton_mm_9"]
    assert {e.letter for e in found} == {"A"}


@pytest.mark.parametrize("what", ["verify", "refute", "note", "drift", "unpin"])
def test_what_happens_to_a_pin_is_called_what_it_is(tmp_path: Path, what: str) -> None:
    write_week(tmp_path)
    pins = Layout(tmp_path).pins
    held = json.loads(pins.read_text())
    held["history"].append({**held["history"][-1], "what": what})
    pins.write_text(json.dumps(held))
    assert [event.what for event in told(tmp_path).events][-2:] == ["pin", what]


def test_a_measurement_that_is_unclear_is_no_tie(tmp_path: Path) -> None:
    write_week(tmp_path)
    (log,) = Layout(tmp_path).sessions.glob("node-9-*.jsonl")
    log.write_text(log.read_text().replace('"faster"', '"unclear"').replace("slower", "unclear"))
    event = told(tmp_path).events[3]
    row = EventJson.of(event)
    assert (event.what, row.tied, row.unclear) == ("measured", False, True)
    (tie,) = (field for field in HISTORY if field.key == "tie")
    assert [tie.text(entry) for entry in entries(told(tmp_path))][3] == "unclear"


def test_show_prints_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_week(tmp_path)
    words = ["show", KEY.id, "--history", "--cache-dir", str(tmp_path)]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert text.startswith("5 events\n") and "torch 2.11.0 → 2.13.0" in text
    assert main([*words, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    events = found["events"]
    assert [event["ms"] for event in events] == [0.14, 0.08, None, 0.15, None]
    assert events[1]["changed"] == ["torch 2.11.0 → 2.13.0"] and events[4]["torch"] is None
    assert found["id"] == events[0]["id"]


@pytest.mark.parametrize(
    ("system", "versions"),
    [
        ({"version": {"triton": "3.9.0" + "5" * 64 + "-7fb8"}}, Versions("3.9.0", "")),
        ({"version": {"triton": 3, "hip": "7.1"}}, Versions("", "7.1")),
        ({"version": []}, Versions()),
        ([], Versions()),
    ],
)
def test_versions_of_a_cache_file(tmp_path: Path, system: object, versions: Versions) -> None:
    path = tmp_path / SYSTEM
    path.write_text(json.dumps({"system": system, "cache": {}}))
    assert system_versions(path) == versions


def test_a_log_names_no_file_to_be_read(tmp_path: Path) -> None:
    write_run(tmp_path, 1, MONDAY, {"mm-bb": 0.1}, "2.11.0")
    for log in Layout(tmp_path).sessions.glob("*.jsonl"):
        log.write_text(log.read_text().replace(SYSTEM, "../../secret"))
    (tmp_path / "secret").write_text(json.dumps({"system": {"version": {"hip": "6.6.6"}}}))
    (event,) = told(tmp_path).events
    assert event.stand.rocm == ""


def test_the_history_of_a_kernel_has_no_other_kernel_of_triton() -> None:
    def kernel(inputs: str, precision: str | None = None) -> Tuning:
        return Tuning(op="triton", inputs_key=inputs, precision=precision)

    scale = kernel('scale[4096, "torch.float16"]:AAAAAAAA', "")
    assert same_problem(scale, kernel('scale[4096, "torch.float16"]'))
    for other in ("add", "scale", 'scale[512, "torch.float16"]', 'add[4096, "torch.float16"]'):
        assert not same_problem(scale, kernel(other)) and not same_problem(kernel(other), scale)
    assert not same_problem(kernel("add"), kernel("scale"))
    assert problem_of(kernel("add")) != problem_of(kernel("scale"))


def test_an_unpin_is_none_of_the_pins(tmp_path: Path) -> None:
    write_week(tmp_path)
    PinStore(Layout(tmp_path)).unpin(KEY, SYSTEM, who="bob")
    *_, pin, unpin = told(tmp_path).events
    assert (pin.what, pin.note) == ("pin", "pin by ann: measured faster")
    assert (unpin.what, unpin.note) == ("unpin", "unpin by bob")
