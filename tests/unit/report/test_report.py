"""The report of one job: disagreements, what tuning bought, what was repeated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.model.choice import Choice
from backend.model.session import Session
from backend.model.tuning import Pin, Tuning
from backend.pins.state import PinStatus
from rocm_tui.compare.types import TuningSet
from rocm_tui.json_output import builtins_of
from rocm_tui.render.pages import pages
from rocm_tui.render.report import TO_AGREE, ReportJson, rank_lines, text
from rocm_tui.report.agreement import DifferingProblem
from rocm_tui.report.job import report
from tests.support.compare_lab import as_tuned, log, measurement, part, tuning
from tests.support.report_lab import compare

RANKS = [Session(f"s{rank}", host="box", pid=100 + rank, rank=rank) for rank in range(3)]
AB, BA = {"bmm": 1.0, "triton_a": 1.2}, {"bmm": 1.25, "triton_a": 1.1}


def differing(job: TuningSet) -> list[DifferingProblem]:
    return [each for jobs in report(job).jobs for each in jobs.differing]


def on_rank(rank: int, times: Mapping[str, float | None], n: int = 1, **more: Any) -> Tuning:
    source = f"/c/s{rank}.jsonl"
    return tuning(n, times, session=f"s{rank}", source=source, rank=rank, **more)


# Disagreements


def test_ranks_that_chose_differently_are_told_with_both_choices_and_times() -> None:
    job = part(on_rank(0, AB), on_rank(1, BA), on_rank(2, AB), on_rank(0, AB, 2), sessions=RANKS)
    (found,) = differing(job)
    assert found.standing == "apart" and found.ratio == pytest.approx(1.2)
    told = {each.by.name: (each.choice.name, each.ms) for each in found.selections}
    assert told == {
        "rank 0 box": ("bmm", 1.0),
        "rank 1 box": ("triton_a", 1.1),
        "rank 2 box": ("bmm", 1.0),
    }
    page = pages(report(job))["ranks"]
    shown = [tuple(line[key][0] for key in ("who", "use", "time", "apart")) for line in page.cells]
    assert shown == [
        ("rank 0 box", "bmm", "~1.000 ms", "~+20.0 %"),
        ("rank 2 box", "bmm", "~1.000 ms", ""),
        ("rank 1 box", "triton_a", "~1.100 ms", ""),
    ]
    assert [row.tuning.rank for row in page.rows] == [0, 2, 1] and page.count == 1


def test_a_disagreement_inside_the_tie_band_does_not_matter() -> None:
    near = on_rank(0, {"bmm": 1.0, "triton_a": 1.01}), on_rank(1, {"bmm": 1.01, "triton_a": 1.0})
    (found,) = differing(part(*near, sessions=RANKS))
    assert found.standing == "tied" and " tie " in text(report(part(*near, sessions=RANKS)))
    measured = [measurement(1, {"bmm": 1.0, "triton_a": 1.3})]
    (clear,) = differing(part(*near, measured=measured, sessions=RANKS))
    assert clear.standing == "apart" and clear.measurement == measured[0]


def test_what_is_unclear_is_neither_a_tie_nor_a_saving() -> None:
    won = on_rank(0, {"bmm": 1.5, "triton_a": 1.0}, seconds=3.0)
    told = as_tuned(won)
    doubtful = tuple(
        replace(choice, verdict="unclear", ratio_low=0.5, ratio_high=6.0) for choice in told.choices
    )
    job = report(part(won, measured=[replace(told, choices=doubtful)]))
    (gain,) = job.savings.gains
    assert (gain.tied, gain.unclear, gain.measured) == (False, True, True)
    said = text(job)
    assert "Savings vs ATen: unclear for 1 measured problem." in said and "nothing" not in said
    near = {"bmm": 0.0019, "triton_a": 0.0018}, {"bmm": 0.0018, "triton_a": 0.0019}
    ranks = [on_rank(rank, times) for rank, times in enumerate(near)]
    (doubted,) = differing(part(*ranks, sessions=RANKS))
    assert doubted.standing == "unclear"
    assert " unclear " in text(report(part(*ranks, sessions=RANKS)))


def test_only_processes_of_one_job_are_compared() -> None:
    logs = log(1, AB, source="/l/host1.log"), log(1, BA, source="/l/host2.log")
    assert report(part(*logs)).jobs == ()
    other = [replace(session, started=1e6 * session.pid) for session in RANKS]
    assert report(part(on_rank(0, AB), on_rank(1, BA), sessions=other)).jobs == ()
    alone = [replace(session, rank=None) for session in RANKS]
    assert report(part(on_rank(0, AB), on_rank(1, BA), sessions=alone)).jobs == ()


def test_nobody_is_said_to_agree_where_nothing_was_compared() -> None:
    alone, together = (
        report(part(on_rank(0, AB))),
        report(part(on_rank(0, AB), on_rank(1, AB), sessions=RANKS)),
    )
    for told, agree in ((alone, False), (together, True)):
        assert [job.agree for job in told.jobs] == [True] * agree
        sentences = [sentence for sentence, _ in pages(told)["ranks"].sentences]
        assert all(sentence in text(told) for sentence in sentences)
        assert ("1 of 1 problem agrees; 0 differ." in sentences) is agree
        assert builtins_of(ReportJson.of(told))["compared_by_ranks"] == agree


def test_ranks_on_systems_that_differ_are_not_compared() -> None:
    apart = [replace(each, arch=f"gfx94{each.rank}") for each in RANKS]
    (job,) = report(part(on_rank(0, AB), on_rank(1, BA), sessions=apart)).jobs
    assert (job.compared, job.not_compared, job.apart) == (0, 1, 1) and not job.differing
    assert "`agree --across` compares them all." in text(
        report(part(on_rank(0, AB), on_rank(1, BA), sessions=apart))
    )


def test_of_many_jobs_the_ones_that_differ_come_first() -> None:
    logs = [
        replace(log(at, times, source=f"/l{at}/rank{rank}.log"), rank=rank)
        for at in range(1, 10)
        for rank, times in enumerate((AB, BA if at == 9 else AB))
    ]
    lines = rank_lines(report(part(*logs)).jobs)
    assert lines[0] == "0 of 1 problem agrees; 1 differs."
    assert lines[-2:] == ["And 3 more jobs.", TO_AGREE]


def test_a_process_that_tuned_twice_counts_by_what_it_uses_in_the_end() -> None:
    job = part(on_rank(0, BA), on_rank(0, AB, when=2.0), on_rank(1, AB), sessions=RANKS)
    assert differing(job) == [] and len(report(job).jobs) == 1


def test_what_a_rank_took_from_the_cache_need_not_be_what_the_other_timed() -> None:
    """Both are views of one tuning."""
    timed = on_rank(0, AB)
    bare = tuple(replace(choice, ms=None) for choice in timed.choices)
    reused = replace(on_rank(1, AB, when=2.0), choices=bare, selected_by="cache")
    first, other = (choice.hash for choice in timed.choices)
    job = part(replace(timed, selected=first), replace(reused, selected=other), sessions=RANKS)
    assert len(job.rows) == 1
    (found,) = differing(job)
    assert {each.by.name: each.choice.hash for each in found.selections} == {
        "rank 0 box": first,
        "rank 1 box": other,
    }
    same = part(replace(timed, selected=first), replace(reused, selected=first), sessions=RANKS)
    assert differing(same) == []


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
    assert "; those 2 are paid for after 4,000 passes" in text(report(job))


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
    (told,) = builtins_of(ReportJson.of(report(job)))["saved"]["tunings"]
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
    told = json.loads(json.dumps(builtins_of(ReportJson.of(found)), allow_nan=False))
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
