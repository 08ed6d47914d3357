"""The history of a problem: logs, a cache file and pins as the program itself writes them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.model.choice import Choice, MeasuredChoice, Measurement, sort_choices
from backend.model.session import Session
from backend.model.tuning import Tuning
from backend.pins.file import HistoryEntry
from backend.pins.store import PinStore
from rocm_tui.actions.sources import load_model, pick_tuning, problem_history
from rocm_tui.cli.entry import main
from rocm_tui.ingest.records import MeasurementSeen, Seen, SessionSeen
from rocm_tui.render.history import HISTORY, EventJson, chart, entries
from rocm_tui.session.history import (
    Event,
    History,
    Setup,
    Versions,
    cache_files,
    history,
    same_problem,
    system_versions,
)
from rocm_tui.session.model import Model, Row
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
    assert (first.setup.torch, second.setup.torch, reuse.session) == ("2.11.0", "2.13.0", "s3")
    assert measured.session == "m"
    assert (first.setup.triton, first.setup.rocm) == ("3.6.0", "7.1.25")
    assert first.setup.device == "gfx942"
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
    assert event.setup.torch == "", "a cache tells no version of PyTorch"
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
    assert (event.label, event.setup.triton, event.setup.rocm) == ("mm", "", "")


def test_what_was_only_taken_from_the_cache_was_not_tuned_then(tmp_path: Path) -> None:
    write_cache(tmp_path, 8)
    write_run(tmp_path, 3, MONDAY, {}, "2.13.0", "cache")
    history = told(tmp_path)
    assert [(e.what, e.session) for e in history.events] == [("from cache", "s3")]
    assert [(e.what, e.session, e.setup.torch) for e in history.undated] == [("tuned", "", "")]


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


def test_a_time_of_0_has_a_plot() -> None:
    row = Row(("t",), "abc1234", 1, Tuning(op="mm"))
    timed = History(row, (Event("tuned", MONDAY, "mm", kernel="mm", ms=0.0),))
    lines = ["".join(text for text, _ in line) for line in chart(timed, 80, 14)]
    assert any("A" in line for line in lines)


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
    assert event.setup.rocm == ""


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


def test_a_kernel_on_two_devices_and_in_a_log_without_hashes_has_one_letter() -> None:
    """Its hash contains the device index, and a log gives only a name to a call of ATen."""

    def tuned(session: str, index: int, triton: float) -> Tuning:
        choices = [
            Choice("triton_mm_3", f"triton_mm-{index}{index}", triton, identity="triton_mm-00"),
            Choice("mm", "mm-cc", 1.0),
        ]
        return Tuning(
            "mm", ((8, 8), (8, 8)), inputs_key="x", precision="highest", device="cuda",
            choices=sort_choices(choices), num_choices=2, session=session, when=float(index + 1),
            selected_by="timing", device_index=index, sources=(f"/s/{session}.jsonl",),
        )  # fmt: skip

    log = Tuning(
        "mm", ((8, 8), (8, 8)), choices=(Choice("mm", ms=0.9), Choice("triton_mm_5", ms=1.2)),
        num_choices=2, when=9.0, sources=("/l/a.log",),
    )  # fmt: skip
    model = Model()
    views = [tuned("a", 0, 0.5), tuned("b", 1, 0.6), tuned("c", 2, 2.0), log]
    model.apply(Seen(f"{view.sources[0]}#1", view) for view in views)
    past = history(model, model.rows()[0])
    assert [(e.event.label, e.letter) for e in entries(past)] == [
        ("triton_mm_3", "A"), ("triton_mm_3", "A"), ("mm", "B"), ("mm", "B"),
    ]  # fmt: skip


FACTS = {
    "shapes": ((8, 8), (8, 8)), "strides": ((8, 1), (8, 1)), "dtypes": ("torch.float32",) * 2,
    "precision": "highest", "device": "cuda:0",
}  # fmt: skip
ELSE = {
    "shapes": ((8, 9), (9, 8)), "strides": ((1, 8), (8, 1)), "dtypes": ("torch.float16",) * 2,
    "precision": "high", "device": "cpu",
}  # fmt: skip


@pytest.mark.parametrize("fact", FACTS)
def test_a_problem_differs_only_by_what_both_sources_know(fact: str) -> None:
    known: dict[str, Any] = FACTS
    one, other = Tuning("_mm", **known), Tuning("mm", **{**known, fact: ELSE[fact]})
    silent = Tuning("mm", **{name: value for name, value in known.items() if name != fact})
    assert same_problem(one, silent) and same_problem(silent, other)
    assert not same_problem(one, other) and not same_problem(one, replace(silent, op="bmm"))
    assert same_problem(one, replace(one, device="cuda:1"))
    keyed = replace(one, inputs_key="x")
    assert same_problem(keyed, replace(other, op="_mm", precision="highest", inputs_key="x"))
    assert not same_problem(keyed, replace(keyed, inputs_key="y"))
    assert same_problem(keyed, one) and not same_problem(keyed, other)


def entry(what: str, when: float, **changed: str) -> HistoryEntry:
    facts: dict[str, Any] = {"inputs": "x", "precision": "highest", "note": "", **changed}
    return HistoryEntry(when, "ann", what, "mm", hash="mm-b", label="mm", **facts)


def timed(session: str | None, when: float | None, *choices: Choice, **facts: Any) -> Tuning:
    given: dict[str, Any] = {"inputs_key": "x", "precision": "highest", **FACTS, **facts}
    source = f"/s/{session}.jsonl" if session else f"/c/cache/{SYSTEM}"
    return Tuning("mm", choices=choices, session=session, when=when, sources=(source,), **given)


MM, FAST = Choice("mm", "mm-b", 1.0), Choice("triton_mm_1", "triton-a", 0.5)
OF_SESSIONS = [
    Session("s1", torch="2.9.0+rocm7.0", device="MI300X", arch="gfx942", system_hash=SYSTEM),
    Session("s2", torch="2.10.0", device="MI250X"),
    Session("s3", device="MI250X"),
    Session("s4", torch="2.9.0", arch="gfx942"),
]


def past(*tunings: Tuning, pins: tuple[HistoryEntry, ...] = (), more: Any = ()) -> History:
    model = Model()
    model.apply(SessionSeen(session) for session in OF_SESSIONS)
    model.apply(Seen(f"{each.sources[0]}#{at}", each) for at, each in enumerate(tunings))
    model.apply(more)
    return history(model, model.rows()[0], pins, {SYSTEM: Versions("3.4", "7.1")})


def test_what_differs_is_told_against_the_last_event_that_knows_it() -> None:
    events = past(*(timed(f"s{at}", at * 1.0, FAST, MM) for at in range(1, 5))).events
    assert [event.setup for event in events] == [
        Setup("2.9.0+rocm7.0", "3.4", "7.1", "gfx942"),
        Setup("2.10.0", "", "", "MI250X"),
        Setup("", "", "", "MI250X"),
        Setup("2.9.0", "", "", "gfx942"),
    ]
    assert [event.changed for event in events] == [
        (),
        ("torch 2.9.0+rocm7.0 → 2.10.0", "device gfx942 → MI250X"),
        (),
        ("torch 2.10.0 → 2.9.0", "device MI250X → gfx942"),
    ]


@pytest.mark.parametrize(
    ("tuning", "what", "label", "gain", "standing"),
    [
        (timed("s1", 1.0, FAST, MM), "tuned", "triton_mm_1", 2.0, "ahead"),
        (timed("s1", 1.0, MM, replace(FAST, ms=2.0)), "tuned", "mm", None, "ahead"),
        (timed("s1", 1.0, FAST), "tuned", "triton_mm_1", None, None),
        (timed("s1", 1.0, FAST, MM, state="running"), "running", "triton_mm_1", None, None),
        (timed("s1", 1.0, FAST, MM, state="cut"), "cut off", "triton_mm_1", None, None),
        (timed("s1", 1.0, MM, num_choices=1), "one choice", "mm", None, None),
        (timed("s1", 1.0, replace(MM, ms=None), num_choices=1), "one choice", "mm", None, None),
        (timed("s1", 1.0), "tuned", "", None, None),
        (timed("s1", 1.0, replace(FAST, ms=0.0), MM), "tuned", "triton_mm_1", None, "ahead"),
    ],
)
def test_a_tuning_as_an_event(
    tuning: Tuning, what: str, label: str, gain: float | None, standing: str | None
) -> None:
    (event,) = past(tuning).events
    assert (event.what, event.label, event.gain, event.standing) == (what, label, gain, standing)
    assert event.ms == (tuning.choices[0].ms if tuning.choices else None)
    assert not gain or event.error == pytest.approx(0.00015), "of two times with four decimals"


@pytest.mark.parametrize(
    ("by", "selected", "what", "label"),
    [
        ("cache", "triton-a", "from cache", "triton_mm_1"),
        ("pin", "mm-b", "from pin", "mm"),
        ("rank", "none-c", "from rank", "none-c"),
    ],
)
def test_what_was_taken_is_an_event_without_a_time(
    by: Any, selected: str, what: str, label: str
) -> None:
    names = replace(FAST, ms=None), replace(MM, ms=None)
    reused = timed("s2", 2.0, *names, selected_by=by, selected=selected)
    cache = timed(None, None, replace(FAST, name=None), replace(MM, name=None))
    told = past(reused, cache)
    (event,) = told.events
    assert (event.what, event.label, event.hash, event.session) == (what, label, selected, "s2")
    assert event.ms is None and event.when == 2.0 and event.setup.torch == "2.10.0"
    assert [(e.what, e.session) for e in told.undated] == [("tuned", "")]


def test_only_pins_of_the_problem_are_events_and_all_of_them() -> None:
    pins = (
        entry("pin", 5.0, note="why"), entry("repin", 4.0), entry("drift", 3.0),
        entry("pin", 2.0, inputs="y"), entry("pin", 2.0, precision="high"),
    )  # fmt: skip
    events = past(timed("s1", 3.5, FAST, MM), pins=pins).events
    assert [(event.what, event.when, event.note) for event in events] == [
        ("drift", 3.0, "drift by ann"),
        ("tuned", 3.5, ""),
        ("pin", 4.0, "repin by ann"),
        ("pin", 5.0, "pin by ann: why"),
    ]
    assert [event.kernel for event in events] == ["mm-b", "triton-a", "mm-b", "mm-b"]
    log = replace(timed("s1", 3.5, FAST, MM), inputs_key=None)
    assert len(past(log, pins=pins).events) == 1, "a log does not say of which key it is"


@pytest.mark.parametrize(
    ("choices", "when", "name", "label", "standing"),
    [
        (2, 9.0, None, "mm", "clear"), (2, 9.0, "new", "new", "clear"), (1, 9.0, None, "mm", None),
        (2, 0.0, None, "mm", "clear"),
    ],
)  # fmt: skip
def test_a_measurement_as_an_event(
    choices: int, when: float, name: str | None, label: str, standing: str | None
) -> None:
    first = MeasuredChoice("mm-b", 0.9, 0.8, 1.1, 0.0, 7, 1.0, 1.0, 1.0, "faster", name)
    found = (first, replace(first, hash="triton-a", verdict="slower"))[:choices]
    measured = Measurement("mm", "x", "highest", when, found, rounds=7, session="s1")
    empty = replace(measured, choices=(), when=8.0)
    records = [MeasurementSeen("/m", measured), MeasurementSeen("/m", empty)]
    told = past(timed("s1", 1.0, FAST, MM), more=records)
    (event,) = told.events[1:] if when else told.undated
    assert (event.what, event.label, event.standing) == ("measured", label, standing)
    assert (event.ms, event.low, event.high, event.session) == (0.9, 0.8, 1.1, "s1")
    assert "7 rounds" in event.note and "hot" in event.note and event.when == (when or None)
    assert event.setup == Setup("2.9.0+rocm7.0", "3.4", "7.1", "gfx942")


def test_the_cache_files_of_a_problem(tmp_path: Path) -> None:
    model = Model()
    model.apply([SessionSeen(OF_SESSIONS[0])])
    one = timed("s1", 1.0, FAST, MM)
    model.apply([Seen("/s/s1.jsonl#1", one)])
    assert cache_files(model, model.rows()[0]) == {SYSTEM: ""}
    other = replace(timed(None, None, FAST, MM), sources=(f"/c/cache/{'5' * 64}",))
    model.apply([Seen("/c#1", timed(None, None, FAST, MM)), Seen("/d#1", other)])
    paths = {name: f"/c/cache/{name}" for name in (SYSTEM, "5" * 64)}
    assert cache_files(model, model.rows()[0]) == paths


@pytest.mark.parametrize(
    ("text", "hip"),
    [
        ('{"system": {"version": {"hip": "7.0"}}, "cache": {', "7.0"),
        ('{"system":{"version": {"hip": "7.1"}}, ', "7.1"),
        ('{"system": {"version": {"hip": 3}}', ""),
        ('{"system": {"version": []}}', ""),
        ('{"system": []}', ""),
        ('{"system": ', ""),
        ('{"systems": {"version": {"hip": "7.0"}}}', ""),
        ("[" * 5000, ""),
    ],
)
def test_the_versions_in_the_header_of_a_cache_file(tmp_path: Path, text: str, hip: str) -> None:
    path = tmp_path / SYSTEM
    path.write_text(text)
    assert system_versions(path).hip == hip
    assert system_versions(tmp_path) == system_versions(tmp_path / "none") == Versions()
