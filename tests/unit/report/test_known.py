"""A report counts what it does not know: times of ATen, seconds, calls, machines, waits."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.compare.comparison import compare
from rocm_tui.json_output import builtins_of
from rocm_tui.render.compare import text as compare_text
from rocm_tui.render.pages import PAGES, pages
from rocm_tui.render.report import ReportJson, saved_lines, text
from rocm_tui.render.table import fit
from rocm_tui.report.job import MissingBackend, Reason, report, rows_by_system
from tests.support.compare_lab import as_tuned, log, part, tuning
from tests.support.report_lab import compare as run

WON = {"bmm": 1.5, "triton_a": 1.0}
NO_ATEN = {"triton_a": 1.0, "triton_b": 1.2}
YEAR = 365 * 86400.0


def said(*tunings: Tuning, **more: Any) -> str:
    """Where each was measured, and found as it was tuned."""
    return once(*tunings, measured=[as_tuned(t) for t in tunings if t.inputs_key], **more)


def once(*tunings: Tuning, **more: Any) -> str:
    return " ".join(saved_lines(report(part(*tunings, **more)).savings))


def test_what_was_taken_once_is_counted_and_never_added_up() -> None:
    three = [tuning(n, WON) for n in (1, 2, 3)]
    told = once(*three)
    assert told.startswith("Savings vs ATen: not measured. Tuning took 6.0 s.")
    assert "3 problems are left out: single timings (~)" in told
    assert "a to measure all suspects" in told and "saves 0" not in told and "paid" not in told
    told = once(*three, tuning(4, NO_ATEN), measured=[as_tuned(three[0])])
    assert "Tuning saves 500.0 µs a pass against ATen (1 of 4 problems: 2 not measured, " in told
    assert "1 without a time of ATen)" in told and "that one is paid for after 4,000 passes" in told
    found = builtins_of(ReportJson.of(report(part(*three, measured=[as_tuned(three[0])]))))["saved"]
    assert [gain["measured"] for gain in found["tunings"]] == [True, False, False]
    assert (found["saved_ms"], found["problems_unmeasured"]) == (0.5, 2)
    table = text(report(part(*three, measured=[as_tuned(three[0])])))
    assert table.count(" ~500.0 µs") == 4 and table.count(" 500.0 µs") == 3
    cells = pages(report(part(*three, measured=[as_tuned(three[0])])))["saved"].cells
    assert [line["saved"][1] for line in cells] == ["good", "dim", "dim"]


def test_a_time_that_is_not_to_be_believed_has_the_mark_that_it_has_in_watch() -> None:
    told = report(part(tuning(1, {"bmm": 80.0, "triton_a": 1.0}), tuning(2, WON)))
    assert [gain.row.suspect is None for gain in told.savings.gains] == [False, True]
    first, second = pages(told)["saved"].cells
    assert (first["saved"][0], second["saved"][0]) == ("?79.00 ms", "~500.0 µs")


def test_all_that_is_known_is_said_in_one_sentence() -> None:
    told = said(tuning(1, WON), tuning(2, {"bmm": 1.0, "triton_a": 1.3}))
    assert told == (
        "Tuning saves 500.0 µs a pass against ATen and took 4.0 s: paid for after 8,000 passes."
    )


def test_what_is_saved_is_not_known_where_no_row_of_aten_was_shown() -> None:
    told = said(tuning(1, NO_ATEN), tuning(2, NO_ATEN))
    assert told.startswith("Savings vs ATen unknown: none of 2 problems")
    assert "nothing" not in told and "paid" not in told and told.endswith("Tuning took 4.0 s.")


def test_kernels_of_triton_are_not_said_to_lack_a_time_of_aten() -> None:
    kernel = replace(tuning(3, NO_ATEN), op="reduction", inputs_key="triton_red_fused_sum[8]")
    assert once(kernel) == (
        "Savings vs ATen unknown: 1 Triton kernel has no rival in ATen. Tuning took 2.0 s."
    )
    told = once(kernel, tuning(1, NO_ATEN), tuning(2, NO_ATEN))
    assert "none of 2 problems has a time of ATen, and 1 Triton kernel has no rival in" in told
    told = once(kernel, tuning(1, WON), measured=[as_tuned(tuning(1, WON))])
    assert "against ATen (1 of 2 problems: 1 Triton kernel without a rival there) and" in told


def test_what_the_sum_leaves_out_is_said() -> None:
    tunings = [tuning(n, WON if n < 4 else NO_ATEN) for n in range(1, 10)]
    told = said(*tunings)
    assert "saves 1.500 ms a pass against ATen (3 of 9 problems: 6 without a time of ATen)" in told
    assert "took 18 s; those 3 are paid for after 4,000 passes" in told
    page = pages(report(part(*tunings, measured=map(as_tuned, tunings))))["saved"]
    assert " ".join(line for line, _ in page.sentences) == told


def test_seconds_that_are_not_told_make_it_at_least_so_many_runs() -> None:
    told = said(tuning(1, WON), tuning(2, WON, seconds=None))
    assert "took at least 2.0 s (unknown for 1 of 2 tunings)" in told
    assert "paid for after at least 2,000 passes" in told
    told = said(tuning(1, WON, seconds=None))
    assert "took an unknown time; passes to pay for it: unknown" in told
    job = part(tuning(1, WON), tuning(1, WON, seconds=None, when=2.0))
    (gain,) = report(job).savings.gains
    assert (gain.seconds, gain.untold) == (2.0, 1) and "≥2.0 s" in text(report(job))
    again = part(*(tuning(1, WON, seconds=s, when=w) for s, w in ((1.0, 1), (None, 2), (3.0, 3))))
    assert [(e.seconds, e.untold) for e in report(again).repeated] == [(3.0, 1)]


def test_a_loss_is_not_nothing() -> None:
    one = tuning(1, WON)
    slow = next(choice for choice in one.choices if choice.name == "bmm")
    other = replace(tuning(2, {"bmm": 1.0, "triton_a": 1.5}), selected_by="pin")
    pinned = replace(other, selected=next(c.hash for c in other.choices if c.name == "triton_a"))
    assert "Tuning loses 500.0 µs a pass against ATen and" in said(pinned)
    assert "saves nothing" in said(replace(one, selected=slow.hash, selected_by="pin"))


def test_calls_that_nobody_tells_count_once_and_that_is_said() -> None:
    cache = tuning(1, WON, session=None)
    assert "Call count unknown: 1 problem is counted once." in said(cache)
    assert "not measured" in said(log(1, WON))
    assert "Call count unknown" not in said(tuning(1, WON))


# Machines


def session(name: str, **facts: Any) -> Session:
    return Session(name, **facts)


def test_several_machines_are_counted_and_pay_nothing_together() -> None:
    a = tuning(1, WON, session="a", source="/c/a.jsonl", when=YEAR / 2)
    b = tuning(2, WON, session="b", source="/c/b.jsonl", when=3 * YEAR)
    boxes = [session("a", host="x", device="MI300X"), session("b", host="y", device="MI210")]
    told = said(a, b, sessions=boxes)
    each = "saves 500.0 µs a pass against ATen and took 2.0 s: paid for after 4,000 passes."
    assert told.count("Tuning ") == 2 and "adds up" not in told
    assert f"MI300X of x: Tuning {each}" in told and f"MI210 of y: Tuning {each}" in told
    assert re.search(r"Tuned between 1970-0[67]-.. and 197[23]-", told)
    found = builtins_of(ReportJson.of(report(part(a, b, sessions=boxes))))["saved"]
    assert found["runs_to_pay"] is None and len(found["systems"]) == 2
    assert [own["system"] for own in found["by_system"]] == found["systems"]
    assert json.loads(json.dumps(found, allow_nan=False))["problems_without_aten"] == 0
    assert found["problems_unmeasured"] == 2
    ranks = [replace(each, device="MI300X", rank=at) for at, each in enumerate(boxes)]
    told = said(a, b, sessions=ranks)  # one job
    assert "adds up" not in told and "paid for after" in told


def test_a_machine_is_known_by_its_session_its_cache_file_or_its_log() -> None:
    box = session("s", host="x", device="MI300X", system_hash="aa")
    own = tuning(1, WON)
    cache = tuning(2, WON, session=None, source="/c/cache/aa")
    other = tuning(3, WON, session=None, source="/c/cache/bbbbbbbbbbbbbbbbbb")
    assert tuple(rows_by_system(part(own, cache, sessions=[box]))) == ("MI300X of x",)
    assert len(rows_by_system(part(own, cache, other, sessions=[box]))) == 2
    assert tuple(rows_by_system(part(other))) == ("cache bbbbbbbbbbbb",)
    logs = log(1, WON, source="/l/a.log"), log(2, WON, source="/l/b.log")
    assert sorted(rows_by_system(part(*logs))) == ["/l/a.log", "/l/b.log"]
    cpu = replace(log(3, WON, source="/l/a.log"), device="cpu")
    assert len(rows_by_system(part(logs[0], cpu))) == 1


def test_logs_that_differ_are_not_said_to_be_ranks() -> None:
    swapped = {"bmm": 1.0, "triton_a": 1.5}
    found = report(part(log(1, WON, source="/l/a.log"), log(1, swapped, source="/l/b.log")))
    assert builtins_of(ReportJson.of(found))["disagreements"] == []
    assert "are not compared" in pages(found)["ranks"].sentences[0][0]


# A busy CPU


def on_cpu(n: int, aten: float, cpp: float) -> Tuning:
    return log(n, {"bmm": aten, "cpp_CppMicroGemmFP32Vec_0": cpp})


def test_waits_on_a_busy_cpu_are_not_added_up() -> None:
    """Numbers of a real log: two kernels of some 20 µs beside a busy neighbour."""
    busy = [on_cpu(1, 15.9847, 8.2226), on_cpu(2, 15.9982, 10.0014), on_cpu(3, 15.9992, 15.9933)]
    told = said(*busy, on_cpu(4, 0.02, 0.01))
    assert "4 problems are left out" in told
    assert "3 of them have times of whole milliseconds, as of calls that wait" in told
    assert "waited" in text(report(part(*busy)))
    quiet = [on_cpu(n, 15.3 + n * 0.21, 8.2 + n * 0.17) for n in range(1, 5)]
    assert "whole milliseconds" not in said(*quiet)
    alone = said(on_cpu(1, 15.9847, 8.2226))  # one of 25 times looks so by chance
    assert "whole milliseconds" not in alone


def test_a_problem_counts_by_those_tunings_that_did_not_wait() -> None:
    busy = [on_cpu(n, 15.9847, 8.0026) for n in range(1, 4)]
    again = replace(on_cpu(1, 0.0305, 0.0105), sources=("/l/quiet.log",))
    gains = {g.row.id: g for g in report(part(*busy, again)).savings.gains}
    assert sorted(gain.waited for gain in gains.values()) == [False, True, True]
    (sure,) = [gain for gain in gains.values() if not gain.waited]
    assert sure.saved_ms == pytest.approx(0.02) and not sure.measured


def test_a_comparison_says_what_tuning_took_as_far_as_that_is_told() -> None:
    a = part(tuning(1, WON), tuning(2, WON, seconds=None))
    found = compare_text(compare(a, part(tuning(1, WON))))
    assert "tuning took at least 2.0 s in A (1 unknown), 2.0 s in B" in found
    assert "tuning took" not in compare_text(compare(*(part(tuning(1, WON, seconds=None)),) * 2))


def test_the_command_on_a_folder(tmp_path: Path) -> None:
    table = (
        "AUTOTUNE mm(64x32, 32x16)\n  triton_mm_1 0.1000 ms 100.0% BLOCK_M=16, num_warps=4\n"
        "  mm 0.2000 ms 50.0%\nAUTOTUNE mm(64x32, 32x99)\n"
        "  triton_mm_2 0.1000 ms 100.0% BLOCK_M=16, num_warps=4\n"
    )
    (tmp_path / "a.log").write_text(table)
    (tmp_path / "b.log").write_text(table.replace("0.1000", "0.1100"))
    done = run(str(tmp_path), cache=tmp_path / "none")
    assert done.returncode == 0, done.stderr
    assert "1 problem is left out" in done.stdout
    assert " ~95.0 µs" in done.stdout
    assert done.stdout.count("Savings vs ATen: not measured") == 2
    assert "/a.log: Savings vs ATen" in done.stdout and "paid for" not in done.stdout


def test_a_reason_is_whole_on_eighty_columns() -> None:
    why = "OutOfResources: shared memory, Required: 131072, Hardware limit: 65536, reduce the tile"
    backend = MissingBackend("TRITON", ("mm", "bmm"), 12, True, 4, (Reason(why, 4),), ())
    page = pages(replace(report(part()), missing=(backend,)))["missing"]
    columns = PAGES["missing"]
    wants = {c.key: max(cell_len(cell[c.key][0]) for cell in page.cells) for c in columns}
    slots = {slot.column.key: slot for slot in fit(columns, wants, 78)}
    shown = [slots["why"].cell(cell["why"][0]).strip() for cell in page.cells]
    assert " ".join(shown) == f"4× {why}" and len(shown) > 1
    assert page.cells[0]["backend"][0] == "TRITON" and page.cells[1]["backend"][0] == ""
