"""The report of one job: disagreements, absent backends, what tuning bought, what was repeated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.inductor.hooks.requested import BackendFacts, absent, missing
from backend.model.choice import Choice
from backend.model.pin import Pin
from backend.model.session import Session
from backend.model.tuning import Tuning
from backend.pins.state import PinStatus
from backend.toolchain.target import amdgpu
from rocm_tui.render.report import report_json, text
from rocm_tui.report.job import report
from rocm_tui.report.types import backend_of, grouped
from tests.support.compare_lab import as_tuned, log, measurement, part, tuning
from tests.support.report_lab import compare

RANKS = [Session(f"s{rank}", host="box", pid=100 + rank, rank=rank) for rank in range(3)]
AB, BA = {"bmm": 1.0, "triton_a": 1.2}, {"bmm": 1.25, "triton_a": 1.1}


def on_rank(rank: int, times: Mapping[str, float | None], n: int = 1, **more: Any) -> Tuning:
    source = f"/c/s{rank}.jsonl"
    return tuning(n, times, session=f"s{rank}", source=source, rank=rank, **more)


# Disagreements


def test_ranks_that_chose_differently_are_told_with_both_choices_and_times() -> None:
    job = part(on_rank(0, AB), on_rank(1, BA), on_rank(2, AB), on_rank(0, AB, 2), sessions=RANKS)
    (found,) = report(job).disagreements
    assert found.matters
    told = {party.who: (party.choice.name, party.ms, party.rivals_ms) for party in found.parties}
    assert told == {
        "rank 0 box": ("bmm", 1.0, (("triton_a", 1.2),)),
        "rank 1 box": ("triton_a", 1.1, (("bmm", 1.25),)),
        "rank 2 box": ("bmm", 1.0, (("triton_a", 1.2),)),
    }


def test_a_disagreement_inside_the_tie_band_does_not_matter() -> None:
    near = on_rank(0, {"bmm": 1.0, "triton_a": 1.01}), on_rank(1, {"bmm": 1.01, "triton_a": 1.0})
    (found,) = report(part(*near, sessions=RANKS)).disagreements
    assert not found.matters and ": a tie" in text(report(part(*near, sessions=RANKS)))
    measured = [measurement(1, {"bmm": 1.0, "triton_a": 1.3})]
    (clear,) = report(part(*near, measured=measured, sessions=RANKS)).disagreements
    assert clear.matters


def test_only_processes_of_one_job_are_compared() -> None:
    logs = log(1, AB, source="/l/host1.log"), log(1, BA, source="/l/host2.log")
    assert report(part(*logs)).disagreements == ()
    other = [replace(session, started=1e6 * session.pid) for session in RANKS]
    assert report(part(on_rank(0, AB), on_rank(1, BA), sessions=other)).disagreements == ()
    alone = [replace(session, rank=None) for session in RANKS]
    assert report(part(on_rank(0, AB), on_rank(1, BA), sessions=alone)).disagreements == ()


def test_a_process_that_tuned_twice_counts_by_what_it_uses_in_the_end() -> None:
    job = part(on_rank(0, BA), on_rank(0, AB, when=2.0), on_rank(1, AB), sessions=RANKS)
    assert report(job).disagreements == ()


# Requested but absent


def asked(*backends: str, absent: tuple[str, ...] = ()) -> Session:
    return Session("s", host="box", backends=backends, absent=absent)


def test_a_backend_without_a_choice_is_absent_with_the_reason_that_was_known() -> None:
    session = asked("ATEN", "CK", "TRITON", absent=("CK: ck4inductor is not installed",))
    job = part(tuning(1, AB), tuning(2, AB), sessions=[session])
    (ck,) = report(job).missing
    assert (ck.backend, ck.ops, ck.tunings, ck.everywhere, ck.failed) == (
        "CK",
        ("bmm",),
        2,
        True,
        0,
    )
    assert [reason.text for reason in ck.reasons] == ["ck4inductor is not installed"]
    assert "CK: no choice in 2 tunings (bmm)" in text(report(job))


def test_a_backend_of_which_all_failed_is_absent_with_the_reasons_grouped() -> None:
    failed = [
        Choice(
            name=f"triton_bmm_{n}",
            hash=f"triton_bmm-{n}",
            failed=True,
            reason=f"OutOfResources: shared memory, Required: {n}00, Hardware limit: 65536"
            if n < 4
            else "it crashed",
        )
        for n in range(5)
    ]
    one = tuning(1, {"bmm": 1.0})
    both = replace(one, choices=(*one.choices, *failed))
    (found,) = report(part(both, sessions=[asked("ATEN", "TRITON")])).missing
    assert (found.backend, found.failed) == ("TRITON", 5)
    assert [reason.count for reason in found.reasons] == [4, 1]
    works = replace(one, choices=(*one.choices, replace(failed[0], failed=False), *failed[1:]))
    assert report(part(works, sessions=[asked("ATEN", "TRITON")])).missing == ()


def test_absent_in_one_op_or_for_one_session_only() -> None:
    mm = replace(tuning(2, {"mm": 1.0}), op="mm")
    session = asked("ATEN", "TRITON")
    (found,) = report(part(tuning(1, AB), mm, sessions=[session])).missing
    assert (found.ops, found.everywhere, found.reasons) == (("mm",), False, ())
    assert "though there is one elsewhere" in text(
        report(part(tuning(1, AB), mm, sessions=[session]))
    )


def test_convolutions_have_a_list_of_their_own() -> None:
    conv = replace(tuning(1, {"convolution": 1.0}), op="convolution")
    session = asked("ATEN", "CK", "conv:ATEN", "conv:TRITON")
    found = report(part(conv, tuning(2, {"bmm": 1.0}), sessions=[session])).missing
    assert {each.backend: each.ops for each in found} == {
        "TRITON": ("convolution",),
        "CK": ("bmm",),
    }


def test_aten_is_not_absent_where_a_library_below_it_has_a_kernel_or_nobody_knows() -> None:
    """As torch 2.13 names them in `linear_binary` of a frozen model."""
    for name in ("_linear_pointwise.binary", "what_is_it"):
        linear = replace(tuning(1, {"cpp_CppMicroGemmFP32Vec_0": 1.0, name: 2.0}), op="linear")
        assert report(part(linear, sessions=[asked("ATEN", "CPP")])).missing == ()
    alone = replace(tuning(1, {"cpp_CppMicroGemmFP32Vec_0": 1.0}), op="linear_binary")
    (found,) = report(part(alone, sessions=[asked("ATEN", "CPP")])).missing
    assert found.backend == "ATEN"


def test_nothing_is_said_where_no_session_tells_what_was_asked() -> None:
    found = report(part(log(1, AB)))
    assert found.missing == () and not found.backends_known
    assert "is told by sessions" in text(found)


@pytest.mark.parametrize(
    ("name", "backend"),
    [("bmm", "ATEN"), ("triton_mm_3", "TRITON"), ("cpp_CppMicroGemm_0", "CPP"),
     ("rocm_ck_gemm_template_7", "CK"), ("rocm_ck_tile_gemm_template_0", "CKTILE"),
     ("rocm_gemm_0", "ROCM"), ("rocm_triton_2", "ROCM"), ("what_is_it", None)],
)  # fmt: skip
def test_which_backend_made_a_choice(name: str, backend: str | None) -> None:
    assert backend_of(Choice(name=name)) == backend


def test_reasons_that_differ_in_numbers_and_paths_are_one() -> None:
    choices = [
        Choice(name=f"ck_{n}", failed=True, reason=f"ck_{n}: /tmp/x{n}/k.hip:{n}: error 0x{n}f")
        for n in range(12)
    ]
    (only,) = grouped(choices)
    assert only.count == 12 and only.text == choices[0].reason


# What is recorded of a machine


ROCM_BOX = BackendFacts(
    kind="cuda", hip=True, arch="gfx942:sramecc+:xnack-", major=9, units=304, cpu_backend="cpp",
    ck_arches=("gfx90a", "gfx942", "gfx950"), wanted_arches=(), cutlass_dir="/none",
    template_target=amdgpu("gfx942"), missing=lambda module: "",
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({}, ["CUTLASS: it is for GPUs of NVIDIA's", "CPP: its templates are for CPUs"]),
        (
            {"arch": "gfx1100", "major": 11},
            [
                "CK: Inductor has it for gfx90a, gfx942, gfx950, not for gfx1100",
                "CUTLASS: it is for GPUs of NVIDIA's",
                "CPP: its templates are for CPUs",
            ],
        ),
        (
            {"missing": lambda module: f"{module} is not installed"},
            [
                "TRITON: triton is not installed",
                "CK: ck4inductor is not installed: it comes with ROCm/composable_kernel",
                "CUTLASS: it is for GPUs of NVIDIA's",
                "CPP: its templates are for CPUs",
            ],
        ),
        (
            {"arch": "gfx1030", "major": 10, "wanted_arches": ("gfx90a",)},
            [
                "TRITON: Inductor uses no templates on gfx1030",
                "CUTLASS: it is for GPUs of NVIDIA's",
                "CPP: its templates are for CPUs",
            ],
        ),
        (
            {"hip": False, "arch": "sm_90", "units": 132},
            [
                "CK: this torch is not a ROCm build",
                "CUTLASS: there is no CUTLASS in /none",
                "CPP: its templates are for CPUs",
            ],
        ),
        (
            {"kind": "cpu", "hip": False},
            [
                "TRITON: the device is a CPU, for which Inductor writes C++",
                "CK: this torch is not a ROCm build",
                "CUTLASS: it is for GPUs of NVIDIA's",
            ],
        ),
    ],
)
def test_why_a_backend_cannot_appear(change: dict[str, Any], told: list[str]) -> None:
    names = ("ATEN", "TRITON", "CK", "CUTLASS", "CPP", "conv:TRITON", "HALIDE")
    assert list(absent(names, replace(ROCM_BOX, **change))) == told


def test_missing_modules_are_named() -> None:
    assert missing("json") == ""
    assert missing("no_such_module") == "no_such_module is not installed"
    assert "no_such_module" in missing("no_such_module.part")


# What tuning bought


def test_what_tuning_bought_against_aten_and_what_it_cost() -> None:
    won = on_rank(0, {"bmm": 1.5, "triton_a": 1.0}, seconds=3.0)
    job = part(
        won,
        replace(on_rank(0, {}, when=2.0, seconds=None), selected_by="cache"),
        on_rank(0, {"bmm": 1.0, "triton_a": 1.3}, 2, seconds=1.0),
        on_rank(0, {"bmm": 1.01, "triton_a": 1.0}, 3, seconds=None),
        on_rank(0, {"triton_a": 1.0}, 4, seconds=2.0),
        sessions=RANKS,
        measured=[as_tuned(won)],
    )
    bought = report(job).savings
    saved = [gain.saved_ms for gain in bought.gains]
    assert saved[:1] == [pytest.approx(0.5)] and saved[1:] == [pytest.approx(0.01), 0.0, None]
    assert [gain.calls for gain in bought.gains] == [2, 1, 1, 1]
    assert [gain.tied for gain in bought.gains] == [False, True, False, False]
    assert bought.saved_ms == pytest.approx(1.0)  # twice 0.5; a tie saves nothing
    assert (bought.seconds, bought.ranks, bought.unknown) == (6.0, 1, 1)
    assert [gain.measured for gain in bought.gains] == [True, False, True, False]
    assert bought.runs_to_pay == pytest.approx(4000)  # of those of which it is known
    assert "; those 2 are paid for after 4,000 runs" in text(report(job))


def test_the_choice_in_use_and_what_it_saves_belong_together() -> None:
    """Two ranks use one choice, the latest another one, which saves more by its own numbers."""
    job = part(
        on_rank(0, {"bmm": 1.3, "triton_a": 1.0, "triton_b": 1.2}, when=1.0),
        on_rank(1, {"bmm": 1.4, "triton_a": 1.0, "triton_b": 1.2}, when=2.0),
        on_rank(2, {"bmm": 1.9, "triton_a": 1.1, "triton_b": 1.0}, when=3.0),
        sessions=RANKS,
    )
    (gain,) = report(job).savings.gains
    assert (gain.choice.label, gain.row.tuning.rank) == ("triton_a", 1)
    assert gain.saved_ms == pytest.approx(0.35)
    (line,) = [line for line in text(report(job)).splitlines() if " ~350.0 µs" in line]
    assert "triton_a" in line and "triton_b" not in line
    (told,) = report_json(report(job))["saved"]["tunings"]
    assert told["choice"] == "triton_a"


def test_a_choice_that_is_selected_though_slower_is_the_one_in_use() -> None:
    one = on_rank(0, {"bmm": 1.5, "triton_a": 1.0, "triton_b": 1.1})
    pinned = next(choice for choice in one.choices if choice.name == "triton_b")
    job = part(replace(one, selected=pinned.hash, selected_by="pin"), sessions=RANKS)
    (gain,) = report(job).savings.gains
    assert gain.choice == pinned and gain.saved_ms == pytest.approx(0.4)
    assert "triton_b" in text(report(job))


def test_a_measurement_says_what_was_really_saved() -> None:
    measured = [measurement(1, {"bmm": 1.0, "triton_a": 1.1})]
    job = part(tuning(1, {"bmm": 1.5, "triton_a": 1.0}), measured=measured)
    (gain,) = report(job).savings.gains
    assert gain.saved_ms == pytest.approx(-0.1)
    assert report(job).savings.runs_to_pay is None


def test_a_sum_of_hot_and_cold_measurements_says_so() -> None:
    slow_aten = {"bmm": 1.5, "triton_a": 1.0}
    tunings = [tuning(n, slow_aten) for n in (1, 2)]
    mixed = [measurement(1, slow_aten), measurement(2, slow_aten, caches="cold")]
    alike = [replace(each, caches="cold") for each in mixed]
    sentence = "1 measured with hot caches and 1 with cold ones are added up"
    assert sentence in text(report(part(*tunings, measured=mixed)))
    assert "hot caches" not in text(report(part(*tunings, measured=alike)))


def test_ranks_pay_side_by_side() -> None:
    times = {"bmm": 2.0, "triton_a": 1.0}
    ranks = [on_rank(rank, times, seconds=4.0) for rank in range(3)]
    job = part(*ranks, sessions=RANKS, measured=[as_tuned(ranks[0])])
    bought = report(job).savings
    assert (bought.seconds, bought.ranks) == (12.0, 3)
    assert bought.runs_to_pay == pytest.approx(4000)


# Tuned again and again


def test_what_was_tuned_again_is_named_with_its_cost_and_its_winners() -> None:
    times = [AB, BA, {"bmm": 1.0, "triton_a": 1.05}]
    job = part(
        *(on_rank(0, each, when=float(at), seconds=1.0 + at) for at, each in enumerate(times)),
        on_rank(0, AB, 2),
        sessions=RANKS,
    )
    (found,) = report(job).repeated
    assert (found.times, found.processes, found.seconds) == (3, 1, 5.0)
    assert found.winners == (("bmm", 2), ("triton_a", 1))
    assert "bmm 2×, triton_a 1×" in text(report(job))


def test_the_report_is_strict_json_and_safe_for_a_terminal() -> None:
    evil = Choice(name="tri\x1b]52;c;x\x07", hash="triton_x-1", failed=True, reason="\x1b[31m")
    one = on_rank(0, AB)
    job = part(
        replace(one, choices=(*one.choices, evil)),
        on_rank(1, BA),
        sessions=[replace(each, backends=("ATEN", "CK\x07"), host="b\x1b") for each in RANKS],
    )
    found = report(job)
    assert "\x1b" not in text(found) and "\x07" not in text(found)
    told = json.loads(json.dumps(report_json(found), allow_nan=False))
    assert told["missing"][0]["backend"] == "CK\x07" and len(told["disagreements"]) == 1


# The command


BLOCK = """AUTOTUNE mm(64x32, 32x16)
strides: [32, 1], [16, 1]
dtypes: torch.float16, torch.float16
  triton_mm_1 0.1000 ms 100.0% BLOCK_M=16, num_warps=4
  mm 0.2000 ms 50.0%
SingleProcess AUTOTUNE benchmarking takes 1.5000 seconds and 0.5000 seconds precompiling for 2 choices
"""  # noqa: E501


def test_the_command_and_its_exit_codes(tmp_path: Path) -> None:
    then, now, none = tmp_path / "then.log", tmp_path / "now.log", tmp_path / "none.log"
    then.write_text(BLOCK)
    now.write_text(BLOCK.replace("0.1000", "0.1500"))
    none.write_text("nothing\n")
    slower = compare(str(then), str(now), "--fail-on-regression", "10", cache=tmp_path)
    assert slower.returncode == 1 and "slower" in slower.stdout
    assert slower.stderr.count("\n") == 1 and "triton_mm_1" in slower.stderr
    more = compare(str(then), str(now), "--fail-on-regression", "60%", "--json", cache=tmp_path)
    assert more.returncode == 0 and json.loads(more.stdout)["common"][0]["verdict"] == "slower"
    table = compare(str(then), str(now), "--markdown", "--also-b", str(then), cache=tmp_path)
    assert table.returncode == 0 and "| ~125.0 µs |" in table.stdout
    alone = compare(str(then), "--json", cache=tmp_path)
    assert alone.returncode == 0
    saved = json.loads(alone.stdout)["saved"]
    assert (saved["saved_ms"], saved["problems_unmeasured"]) == (0, 1)
    assert saved["tunings"][0]["saved_ms"] == pytest.approx(0.1)
    assert saved["tunings"][0]["measured"] is False
    for words, code in (
        ([str(then), str(none)], 1),
        ([str(then), "no_session"], 1),
        ([str(then), "--fail-on-regression", "10"], 2),
        ([str(then), str(now), "--fail-on-regression", "ten"], 2),
    ):
        bad = compare(*words, cache=tmp_path)
        assert bad.returncode == code and bad.stdout == ""


def test_a_pin_decides_what_is_in_use() -> None:
    one = tuning(1, {"bmm": 1.0, "triton_a": 1.2})
    job = part(one)
    (row,) = job.rows
    (known,) = report(job).savings.gains
    assert known.choice.name == "bmm"
    pinned = one.choices[1]
    pin = Pin(one.op, "x", "highest", pinned.hash or "", pinned.label, "s", {})
    held = replace(row, pin=PinStatus(pin, "active", ""))
    (gain,) = report(replace(job, rows=(held,))).savings.gains
    assert gain.choice.name == "triton_a" and (gain.saved_ms or 0.0) < 0
