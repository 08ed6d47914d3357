"""`rocm-tui measure`: from an ID to a verdict, and where it is told afterwards."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from backend.disk.sessions import read_log
from backend.model.choice import Choice, MeasuredChoice, Measurement, Verdict
from backend.model.events import SessionStarted
from backend.model.tuning import Pin, PinState, Tuning
from backend.pins.state import PinStatus
from backend.wire.jobs import MeasureJob, MeasureResult
from rocm_tui.actions.measure import (
    Measuring,
    NotMeasurable,
    NotMeasured,
    measure_job,
    worth_measuring,
)
from rocm_tui.errors import NoSuchChoice
from rocm_tui.jobs.worker import spawn_worker
from rocm_tui.render import measured as measured_text
from rocm_tui.render.measured import repeat_line, repeats_text
from tests.support.broken_workers import broken_python
from tests.support.documents import document

RUN = [sys.executable, "-m", "rocm_tui"]
OTHER_THREADS = {**os.environ, "OMP_NUM_THREADS": "2"}
KEY = "[('cpu', 'torch.float32', 8, 8, 8, 1, 0), ('cpu', 'torch.float32', 8, 8, 8, 1, 0)]"


def _tuning(**times: float | None) -> Tuning:
    choices = tuple(Choice(name, f"{name}-x", ms) for name, ms in times.items())
    return Tuning("mm", inputs_key=KEY, precision="highest", choices=choices)


def _measured(*told: tuple[str, float, Verdict], **more: Any) -> Measurement:
    choices = tuple(
        MeasuredChoice(
            f"{name}-x", ratio, ratio, ratio, 0.01, 20, ratio, ratio - 0.01, ratio + 0.01, verdict
        )
        for name, ratio, verdict in told
    )
    return Measurement("mm", KEY, "highest", 1.0, choices, rounds=20, seconds=1.0, **more)


# Which choices, and in which mode


def test_by_default_all_near_the_best_are_measured_the_second_atens_and_the_pinned_one() -> None:
    def names(tuning: Tuning, pinned: str | None = None, within: float = 0.1) -> str:
        return "".join(choice.label for choice in worth_measuring(tuning, pinned, within))

    assert names(_tuning(a=1.0, b=1.05, c=1.1, d=1.11, e=2.0)) == "abc"
    assert names(_tuning(a=1.0, b=1.05, c=1.1, d=1.11, e=2.0), "e-x") == "abce"
    assert names(_tuning(a=1.0, b=1.05, c=1.1), within=0.05) == "ab"
    assert names(_tuning(a=1.0, b=5.0)) == "ab"
    assert names(_tuning(a=1.0, b=1.05, c=1.2, mm=2.0, addmm=3.0)) == "abmm"
    assert names(_tuning(a=1.0)) == "a"
    assert names(_tuning(a=None)) == ""


def test_what_cannot_be_measured_is_said_before_a_worker_starts() -> None:
    tuning = _tuning(a=1.0)
    with pytest.raises(NotMeasurable, match="known from a log only"):
        measure_job(replace(tuning, inputs_key=None), tuning.choices)
    with pytest.raises(NotMeasurable, match="no choice with a time"):
        measure_job(tuning, ())
    with pytest.raises(NoSuchChoice, match="the hash of b is not known"):
        measure_job(tuning, [Choice("b")])


def test_each_mode_is_tried_until_one_offers_all_choices_else_most_of_them() -> None:
    tuning = _tuning(a=1.0, b=1.1, c=1.2)
    found = _measured(("a", 1.0, "faster"), ("b", 1.1, "slower"))
    asked: list[tuple[int, bool]] = []

    def worker(missing: Mapping[int, list[str]]) -> Any:
        def run(job: MeasureJob) -> MeasureResult:
            asked.append((job.mode, job.partly))
            lacks = tuple(missing[job.mode])
            if lacks and not job.partly:
                return MeasureResult(ok=False, reason="none of", missing=lacks, modes=3)
            return MeasureResult(ok=True, measurement=found, missing=lacks, modes=3)

        return run

    assert Measuring(worker({0: ["a-x"], 1: []}), tuning, tuning.choices).once() == found
    assert asked == [(0, False), (1, False)]
    asked.clear()
    assert Measuring(
        worker({0: ["a-x", "b-x"], 1: ["a-x"], 2: ["b-x"]}), tuning, tuning.choices
    ).once()
    assert asked == [(0, False), (1, False), (2, False), (1, True)]
    with pytest.raises(NotMeasured, match="none of"):
        Measuring(
            worker({at: ["a-x", "b-x", "c-x"] for at in range(3)}), tuning, tuning.choices
        ).once()


# In words


@pytest.mark.parametrize(
    ("pinned", "state", "says"),
    [
        (
            "a-x",
            "active",
            "a is in use, pinned by ann; it is 3.0 % slower than b: "
            "rocm-tui pin 1234567 b, or rocm-tui unpin 1234567",
        ),
        ("b-x", "active", "b is in use, pinned by ann, which is right"),
        ("b-x", "drifted", "b is pinned by ann, drifted, which is right"),
        ("d-x", "active", "the old one is in use, pinned by ann; it was not measured"),
        ("a-x", "orphaned", "Inductor takes b, which is right"),
    ],
)
def test_what_is_pinned_is_in_use_and_not_what_inductor_would_take(
    pinned: str, state: PinState, says: str
) -> None:
    tuning = _tuning(b=1.0, a=1.01)
    found = _measured(("b", 1.0, "faster"), ("a", 1.03, "slower"))
    pin = Pin("mm", "[]", "highest", pinned, "the old one", "", {}, who="ann")
    measured = replace(tuning, measured=found)
    told = measured_text.sentences(measured, found, "1234567", PinStatus(pin, state))
    assert says in told
    assert not [line for line in told if line != says and ("in use" in line or "takes" in line)]


def test_the_sentences_tell_who_is_faster_and_what_that_means() -> None:
    tuning = _tuning(a=1.0, b=1.01, c=1.05)

    def told(found: Measurement) -> list[str]:
        return measured_text.sentences(replace(tuning, measured=found), found, "1234567")

    assert told(_measured(("b", 1.0, "faster"), ("a", 1.03, "slower"), ("c", 1.2, "slower"))) == [
        "with hot caches b is the fastest; a is slower by 2.0 % to 4.0 %, 1 more is slower too",
        "Inductor takes a, which is 3.0 % slower: rocm-tui pin 1234567 b",
        "20 rounds in 1.0 s, hot caches",
    ]
    cold = _measured(
        ("b", 1.0, "tied"),
        ("a", 1.001, "tied"),
        caches="cold",
        resolution_ms=1e-5,
        clock_mhz=1980.0,
        power_w=312.4,
        temperature_c=54.0,
    )
    assert told(cold) == [
        "with cold caches b and a are tied",
        "Inductor takes a, and nothing measured is faster",
        "20 rounds in 1.0 s, cold caches, timer resolution 0.010 µs",
        "1,980 MHz, 312 W, 54 °C",
    ]
    assert told(_measured(("a", 1.0, "unclear"), ("b", 1.001, "unclear"), trouble=("drift",))) == [
        "with hot caches it is unclear whether a is faster than b; a larger --budget or a quieter "
        "machine may decide",
        "20 rounds in 1.0 s, hot caches",
        "drift",
    ]
    alone = told(_measured(("a", 1.0, "unclear")))[0]
    assert alone.startswith("with hot caches a was measured alone")


def test_names_that_torch_numbers_anew_are_those_of_the_tuning() -> None:
    tuning = _tuning(cpp_1=1.0, b=1.1)
    found = _measured(("cpp_1", 1.0, "faster"), ("b", 1.1, "slower"))
    renamed = replace(found, choices=(replace(found.choices[0], name="cpp_7"), found.choices[1]))
    assert [row[0] for row in _rows(tuning, renamed)] == ["cpp_1", "b"]


def test_several_measurements_are_told_as_they_come_and_side_by_side() -> None:
    tuning = _tuning(a=1.0, b=1.01)
    found = [
        _measured(("a", 1.0, "faster"), ("b", 1.1, "slower"), trouble=("drift",)),
        _measured(("b", 1.2, "unclear"), ("a", 1.25, "unclear")),
        _measured(("a", 1.0, "faster"), ("b", 1.1, "slower")),
    ]
    assert repeat_line(tuning, found[0], 1, 3) == (
        "1 of 3: with hot caches a is the fastest; b is slower by 9.0 % to 11.0 % (drift)"
    )
    broken = replace(found[2], failed=(Choice("c", "c-x", failed=True, reason="it crashed"),))
    assert repeat_line(tuning, broken, 3, 3).endswith("9.0 % to 11.0 % (1 failed)")
    assert _cells(repeats_text(tuning, found)) == [
        ["a", "1.000 ms", "1.250 ms", "25.0 %", "faster 2×, unclear 1×"],
        ["b", "1.100 ms", "1.200 ms", "9.1 %", "slower 2×, unclear 1×"],
    ]


def test_intervals_without_an_end_are_no_numbers() -> None:
    found = _measured(("a", 1.0, "unclear"), ("b", 1.1, "unclear"))
    endless = replace(found.choices[1], high=float("inf"), ratio_high=float("inf"))
    rows = _rows(_tuning(a=1.0, b=1.1), replace(found, choices=(endless, endless)))
    assert rows[1][2] == "–" and rows[1][5] == "+9.0 % to –"


# The real thing


def _call(
    *words: str, cache: Path, code: int = 0, env: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*RUN, *words, "--cache-dir", str(cache)],
        env=dict(env),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache dir with one tuning whose choices are 1.4 to 2.8 times apart."""
    cache = tmp_path_factory.mktemp("command") / "cache"
    shapes = [[16, 16, 16], [16, 16, 16]]
    with spawn_worker(sys.executable, cache) as worker:
        worker.exchange({"job": "tune", "op": "bmm", "shapes": shapes, "dtypes": ["torch.float32"]})
    return cache


@pytest.mark.torch
def test_measure_says_who_is_faster_and_ls_and_show_know_it_too(
    cache: Path, tmp_path: Path
) -> None:
    """With as many threads as the tuning had, or torch would not offer its C++ choice."""
    (tuning,) = json.loads(_call("ls", "--json", cache=cache).stdout)["tunings"]
    assert tuning["measurement"] is None
    done = _call("measure", tuning["id"], "--budget", "10", cache=cache, env=OTHER_THREADS)
    lines = done.stdout.splitlines()
    assert lines[0].split()[:2] == ["choice", "median"] and done.stderr == ""
    assert lines[1].startswith("cpp_") and lines[1].endswith("faster")
    assert lines[2].startswith("bmm") and lines[2].endswith("slower")
    assert any("is the fastest; bmm is slower by" in line for line in lines)
    (tuning,) = json.loads(_call("ls", "--json", cache=cache).stdout)["tunings"]
    best, other = tuning["measurement"]["choices"]
    assert (best["verdict"], other["verdict"], best["ratio"]) == ("faster", "slower", 1.0)
    told = {choice["hash"]: choice["measured"] for choice in tuning["choices"]}
    assert told[other["hash"]]["ratio"] == other["ratio"] > 1
    shown = _call("show", tuning["id"], cache=cache).stdout
    assert "Measured:" in shown and lines[1] in shown
    (one,) = _call("ls", cache=cache).stdout.splitlines()[1:]
    assert measured_lead(other["ratio"]) in one
    assert "is slower than cpp" in _call("pin", tuning["id"], "bmm", cache=cache).stderr
    _call("verify", "--python", broken_python(tmp_path), cache=cache, code=1)
    assert json.loads((tmp_path / "jobs").read_text())["threads"] == 1
    _call("unpin", tuning["id"], cache=cache)
    words = ("measure", tuning["id"], "bmm", "#1", "--cold", "--json")
    told = document(_call(*words, cache=cache).stdout, "measure")
    (found,) = told["measurements"]
    assert found == told["measurement"] and len(found["choices"]) == 2
    assert found["caches"] == "cold" and 0 < found["resolution_ms"] < 1e-3
    assert "with cold caches" in _call("show", tuning["id"], cache=cache).stdout


@pytest.mark.torch
def test_a_kernel_that_crashes_fails_alone_and_each_repetition_has_a_worker(
    cache: Path, tmp_path: Path
) -> None:
    """A compiler that puts a trap into each function of the C++ template's kernel."""
    compiler = tmp_path / "g++"
    compiler.write_text(
        "#!/bin/sh\n"
        'for word; do case "$word" in *.main.cpp)\n'
        '  grep -q micro_gemm "$word" && sed -i \'s/^{$/{ __builtin_trap();/\' "$word";;\n'
        "esac; done\n"
        f'PATH={os.environ["PATH"]} exec g++ "$@"\n'
    )
    compiler.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    fresh = tmp_path / "cache"
    shutil.copytree(cache / "cache", fresh / "cache")
    (tuning,) = json.loads(_call("ls", "--json", cache=fresh).stdout)["tunings"]
    words = ("measure", tuning["id"], "--budget", "1", "--repeat", "2", "--json")
    told = document(_call(*words, cache=fresh, code=1, env=env).stdout, "measure")
    found = told["measurements"]
    for one in found:
        (alone,), (failed,) = one["choices"], one["failed"]
        assert alone["hash"].startswith("bmm") and failed["hash"].startswith("Cpp")
        assert failed["reason"].startswith("the worker ended (signal 4, SIGILL)")
    logs = [read_log(path)[0] for path in (fresh / "rocm_tui" / "sessions").iterdir()]
    sessions = [log[0].session for log in logs if isinstance(log[0], SessionStarted)]
    assert {one["session"] for one in found} == {session.id for session in sessions}
    assert len({session.pid for session in sessions}) == 2, "each in a process of its own"
    (tuning,) = json.loads(_call("ls", "--json", cache=fresh).stdout)["tunings"]
    assert tuning["measurement"] == told["measurement"] == found[-1]


def measured_lead(ratio: float) -> str:
    return f"{(ratio - 1) * 100:.1f} %" if ratio < 2 else f"{(ratio - 1) * 100:.0f} %"


@pytest.mark.torch
def test_an_op_that_cannot_be_made_again_says_so(tmp_path: Path) -> None:
    entry = {"convolution": {KEY: {"highest": {"convolution-a": 1.0, "triton_conv-b": 1.1}}}}
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / ("ab" * 32)).write_text(json.dumps({"system": {}, "cache": entry}))
    (tuning,) = json.loads(_call("ls", "--json", cache=tmp_path).stdout)["tunings"]
    done = _call("measure", tuning["id"], cache=tmp_path, code=1)
    assert done.stdout == "" and done.stderr.count("\n") == 1
    assert "convolution cannot be rebuilt" in done.stderr


@pytest.mark.torch
def test_a_killed_worker_is_one_line_and_exit_code_1(cache: Path) -> None:
    (tuning,) = json.loads(_call("ls", "--json", cache=cache).stdout)["tunings"]
    with subprocess.Popen(
        [*RUN, "measure", tuning["id"], "--cache-dir", str(cache)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 60
        while not (children := psutil.Process(process.pid).children()):
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
        os.kill(children[0].pid, 9)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err.count("\n") == 1 and "signal 9" in err


def test_bad_words_are_exit_code_2_and_unknown_ids_exit_code_1(tmp_path: Path) -> None:
    assert "--budget" in _call("measure", "1", "--budget", "0", cache=tmp_path, code=2).stderr
    assert "--within" in _call("measure", "1", "--within", "-1", cache=tmp_path, code=2).stderr
    both = _call("measure", "1", "--hot", "--cold", cache=tmp_path, code=2).stderr
    assert "exclude each other" in both
    assert "--repeat" in _call("measure", "1", "--repeat", "0", cache=tmp_path, code=2).stderr
    assert "no tuning has the id" in _call("measure", "1234567", cache=tmp_path, code=1).stderr


def _rows(tuning: Tuning, measurement: Measurement) -> list[list[str]]:
    """A line a choice, as printed."""
    return _cells(measured_text.measured_text(tuning, measurement))


def _cells(text: str) -> list[list[str]]:
    """The cells of a printed table without its heading."""
    return [re.split(r"  +", line.strip()) for line in text.splitlines()[1:]]
