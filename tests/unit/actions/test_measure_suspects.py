"""Which times are not to be believed, and that a measurement settles it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from backend.disk.layout import Layout
from backend.model.choice import Choice, Measurement
from backend.model.session import Session
from backend.model.tuning import Tuning
from backend.wire.jobs import MeasureResult
from rocm_tui.actions.measure import NotMeasured, find_suspects, measurement_of
from rocm_tui.actions.sources import load_model
from rocm_tui.ingest.records import MeasurementSeen, Seen, SessionSeen
from rocm_tui.json_output import builtins_of
from rocm_tui.render.detail import show_text, suspect
from rocm_tui.render.tuning_json import TuningJson
from rocm_tui.render.tunings import cells
from rocm_tui.session.devices import CacheLevel, Peak, suspicion
from rocm_tui.session.model import Model, Row
from tests.support.compare_lab import as_tuned, choices, inputs, measurement, tuning
from tests.support.places import CORPUS

CPP, ATEN, TRITON = "cpp_CppMicroGemmFP32Vec_0", "bmm", "triton_bmm_1"


def cpu(times: Mapping[str, float | None], n: int = 1) -> Tuning:
    one = tuning(n, times)
    return replace(one, device="cpu", inputs_key=inputs(n).replace("cuda", "cpu"))


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ({CPP: 8.018, ATEN: 13.7}, "8.018 ms is a multiple of 4 ms, as of a call that waits"),
        ({CPP: 3.9995, ATEN: 5.1}, "3.999 ms is a multiple of 4 ms"),
        ({CPP: 7.31, ATEN: 15.9847}, "15.98 ms of bmm is a multiple of 4 ms"),
        ({CPP: 7.31, "cpp_X": 7.4, ATEN: 12.01}, "12.01 ms of bmm is a multiple of 4 ms"),
        ({CPP: 0.8, ATEN: 0.9}, None),
        ({CPP: 7.9, ATEN: 13.7}, None),
        ({CPP: 0.001, ATEN: 0.0012}, None),
        ({CPP: 0.03, ATEN: 17.35}, "bmm took 578× as long, which is rare"),
        ({CPP: 1.0, ATEN: 49.0}, None),
        ({CPP: 0.31, "cpp_X": 0.33, "cpp_Y": 31.1, ATEN: 0.4}, None),  # a poor choice is no rival
        ({CPP: -1.0, ATEN: 1.0}, "its time is not above 0"),
    ],
)
def test_times_of_a_cpu(times: dict[str, float | None], words: str | None) -> None:
    told = suspicion(cpu(times))
    assert told is None if words is None else told is not None and told.startswith(words)


def test_the_same_on_a_gpu_is_no_scheduler_tick() -> None:
    assert suspicion(tuning(1, {TRITON: 8.0, ATEN: 16.0})) is None
    assert "578× as long" in (suspicion(tuning(1, {TRITON: 0.03, ATEN: 17.35})) or "")


def test_what_runs_or_has_no_time_is_no_suspect() -> None:
    assert suspicion(replace(cpu({CPP: 8.0, ATEN: 16.0}), state="running")) is None
    assert suspicion(cpu({CPP: None})) is None and suspicion(cpu({})) is None
    assert suspicion(replace(cpu({CPP: 8.0, ATEN: 16.0}), state="cut"))


H100 = Session("s", host="box", device="NVIDIA H100 80GB HBM3", arch="sm_90", compute_units=132)


def gpu_row(ms: float, session: Session = H100) -> Row:
    """8×(64×32 · 32×96) in fp16: 3.1 MFLOP, 180 kB."""
    model = Model()
    one = tuning(1, {TRITON: ms, ATEN: ms * 1.3})
    model.apply([SessionSeen(session), Seen("/c/s.jsonl#1", one)])
    (row,) = model.rows()
    return row


def test_a_time_beyond_the_roofline_of_the_device_that_tuned_it() -> None:
    moved = 8 * (64 * 32 + 32 * 96 + 64 * 96) * 2
    least = moved / 3350.0 / 1e6
    row = gpu_row(least * 0.8)
    assert row.suspect is not None and "beyond the roofline of NVIDIA H100" in row.suspect
    assert "memory takes to give its operands" in row.suspect
    assert gpu_row(least * 0.95).suspect is None  # the room that clocks and rounding need
    assert gpu_row(least * 2).suspect is None
    assert gpu_row(least * 0.8, replace(H100, device="some GPU")).suspect is None
    flat = Peak("slow", {"half": 0.001}, 3350.0)
    told = suspicion(tuning(1, {TRITON: 0.1, ATEN: 0.2}), flat)
    assert told is not None and "its arithmetic takes there at least 3.146 ms" in told
    cached = Peak("CPU", {"fp32": 1e9}, 1e-6, (CacheLevel("L3", 1 << 40, 1e-6),))
    assert suspicion(cpu({CPP: 0.1, ATEN: 0.2}), cached) is None  # its memory has no roofline
    cached = replace(flat, tflops={"half": 1000.0}, gbs=0.001)
    assert suspicion(tuning(1, {TRITON: 0.1, ATEN: 0.2}), cached)
    assert suspicion(cpu({CPP: 0.1, ATEN: 0.2}), cached) is None  # its operands are in a cache


def test_a_measurement_settles_it_also_where_the_choice_failed() -> None:
    one = cpu({CPP: 8.0, ATEN: 13.7})
    again = replace(as_tuned(one), inputs=one.inputs_key or "")
    assert suspicion(replace(one, measured=again)) is None
    alone = measurement(1, {CPP: 0.8})
    assert suspicion(replace(one, measured=alone)) is None
    other = measurement(1, {ATEN: 0.8})
    assert "8.000 ms is" in (suspicion(replace(one, measured=other)) or "")
    failed = (Choice(CPP, choices({CPP: 1.0})[0].hash, failed=True),)
    assert suspicion(replace(one, measured=replace(other, failed=failed))) is None


def rows(*tunings: Tuning, measured: Measurement | None = None) -> list[Row]:
    model = Model()
    model.apply([Seen(f"/c/{at}.jsonl#1", one) for at, one in enumerate(tunings)])
    if measured is not None:
        model.apply([MeasurementSeen("/m", measured)])
    return model.rows()


def test_a_suspect_is_marked_everywhere_until_it_is_measured() -> None:
    one = cpu({CPP: 8.018, ATEN: 13.7})
    (row,) = rows(one)
    shown = cells(row, 0.0)
    assert shown["time"] == ("?8.018 ms", "warn")
    assert shown["gain"] == ("?1.71×", "dim") and shown["lead"] == ("?70.9 %", "dim")
    assert builtins_of(TuningJson.of(row))["suspect"] == row.suspect and row.suspect is not None
    assert f"suspect    {row.suspect}" in show_text(row)
    line = suspect(row)
    assert line is not None and line[-1][0] == row.suspect
    times = {ATEN: 0.8, CPP: 0.9}
    (row,) = rows(one, measured=replace(measurement(1, times), inputs=one.inputs_key or ""))
    shown = cells(row, 0.0)
    assert shown["time"] == ("900.0 µs", "") and builtins_of(TuningJson.of(row))["suspect"] is None
    assert shown["gain"] == ("0.89×", "dim") and shown["lead"] == ("#2 wins", "warn")
    assert suspect(row) is None and "suspect" not in show_text(row)


def test_the_longest_is_measured_first_and_one_of_each_key() -> None:
    short, long = cpu({CPP: 8.0, ATEN: 13.7}, 1), cpu({CPP: 12.0, ATEN: 13.7}, 2)
    fine = cpu({CPP: 1.1, ATEN: 1.3}, 3)
    twice = replace(short, session="t", when=3.0)
    log = replace(cpu({CPP: 12.0, ATEN: 13.7}, 4), inputs_key=None, precision=None)
    conv = replace(long, op="convolution", session=None)
    known = find_suspects(rows(short, long, fine, twice, log, conv))
    assert [suspect.row.tuning.choices[0].ms for suspect in known.suspects] == [12.0, 8.0]
    assert known.others == 2 and known.missing.startswith("2 suspects are known from logs alone")
    assert all(len(suspect.choices) == 2 for suspect in known.suspects)
    assert find_suspects([]).suspects == () and find_suspects([]).missing == ""


def test_choices_that_ticks_cannot_tell_apart_are_all_measured() -> None:
    ticks = {f"cpp_{n}": 8.001 + 4 * (n % 4) for n in range(12)}
    (suspect,) = find_suspects(rows(cpu({**ticks, ATEN: 24.002}))).suspects
    names = [choice.name for choice in suspect.choices]
    assert len(names) == 9 and ATEN in names and set(names[:3]) == {"cpp_0", "cpp_4", "cpp_8"}
    apart = {"cpp_0": 8.001, "cpp_1": 9.44, ATEN: 13.71, "cpp_2": 20.33}
    (suspect,) = find_suspects(rows(cpu(apart))).suspects
    assert [choice.name for choice in suspect.choices] == ["cpp_0", "cpp_1", ATEN]


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real logs is not here")
def test_suspects_of_real_logs() -> None:
    found = load_model(Layout(CORPUS / "none"), [str(CORPUS)]).rows()
    suspects = [row for row in found if row.suspect]
    assert len(found) > 100 and 5 <= len(suspects) <= 12
    assert {row.tuning.op for row in suspects} == {"packed_linear"}
    for row in found:
        shown = cells(row, 0.0)
        texts = {key: shown[key] for key in ("time", "gain", "lead", "tflops")}
        assert not {style for _, style in texts.values()} & {"good", "strong"}
        for text, _ in texts.values():
            assert text[:1] in "~?" or not any(map(str.isdigit, text)), text


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (MeasureResult(False, "out of memory"), "out of memory"),
        (MeasureResult(True), "the worker gave no measurement"),
    ],
)
def test_a_result_without_a_measurement_says_why(result: MeasureResult, why: str) -> None:
    with pytest.raises(NotMeasured, match=why):
        measurement_of(result)
