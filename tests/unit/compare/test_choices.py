"""Choices of ranks on several devices: which of them are the same kernel, and what is compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from backend.model.choice import Choice
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.compare.choices import identified, log_ratios, same_choice, used
from rocm_tui.compare.comparison import compare
from rocm_tui.json_output import builtins_of
from rocm_tui.render.agree import NOTHING, footer, text
from rocm_tui.render.compare import winners
from rocm_tui.render.pages import pages
from rocm_tui.render.report import ReportJson
from rocm_tui.render.report import text as report_text
from rocm_tui.report.agreement import Agreement, Chooser, Selection, agreement, propose
from rocm_tui.report.job import report
from rocm_tui.session.model import Row
from tests.support.compare_lab import log, measurement, part, tuning

RANKS = [Session(f"s{rank}", host="box", pid=100 + rank, rank=rank) for rank in range(2)]
TIMES = {"triton_a": 1.0, "triton_b": 1.2, "bmm": 1.3}
OTHER = {"triton_a": 1.25, "triton_b": 1.1, "bmm": 1.3}


def on_device(index: int, times: Mapping[str, float], n: int = 1) -> Tuning:
    """A tuning of the rank on this device: Triton's choices have another hash on each."""
    session = f"s{index}"
    told = tuning(n, times, session=session, source=f"/c/{session}.jsonl", rank=index)
    choices = [_on(choice, index) for choice in told.choices]
    return replace(told, choices=tuple(choices), device_index=index)


def _on(choice: Choice, index: int) -> Choice:
    name = choice.hash or ""
    if not name.startswith("triton"):
        return choice
    return replace(choice, hash=f"{name[:-1]}{index}", identity=f"{name[:-1]}0")


def took(index: int, told: Tuning) -> Selection:
    by = Chooser(f"rank {index} box", "", index, "box")
    return Selection(by, Row("", told.id, 1, told), told.choices[0])


def ranks(*tunings: Tuning) -> Agreement:
    taken = [took(index, told) for index, told in enumerate(tunings)]
    return agreement([each.by for each in taken], taken)


def test_an_identity_goes_before_the_hash() -> None:
    one, other = Choice(hash="triton_a-1", identity="triton_a-0"), Choice(hash="triton_a-0")
    assert same_choice(one, other) and same_choice(other, one)
    assert not same_choice(one, replace(other, identity="triton_a-9"))
    assert not same_choice(one, Choice(hash="triton_a-1"))  # on device 0 that is another kernel
    assert same_choice(Choice(name="cpp_X_0"), Choice(name="cpp_X_5", hash="a-1"))


def test_times_of_one_kernel_on_two_devices_are_compared() -> None:
    a, b = part(on_device(0, TIMES)), part(on_device(1, OTHER))
    assert len(log_ratios(a.rows, b.rows)) == 3
    (pair,) = compare(a, b).common
    assert pair.alike and not pair.same_choice
    assert winners(pair) == "triton_a → triton_b"
    same = compare(a, part(on_device(1, TIMES))).common[0]
    assert same.same_choice and same.alike and winners(same) == "triton_a"
    told = on_device(1, TIMES)
    named = tuple(replace(choice, name=f"{choice.name}_7") for choice in told.choices)
    same = compare(a, part(replace(told, choices=named))).common[0]
    assert same.same_choice and winners(same) == "triton_a = triton_a_7"


@pytest.mark.parametrize("device", [0, 1])
def test_a_measurement_on_one_device_decides_for_all(device: int) -> None:
    cold = measurement(1, {"triton_b": 1.0, "triton_a": 1.3}, caches="cold")
    choices = tuple(replace(choice, hash=f"{choice.hash[:-1]}{device}") for choice in cold.choices)
    cold = replace(cold, choices=choices)
    one, other = replace(on_device(0, TIMES), measured=cold), on_device(1, OTHER)
    found = ranks(one, other)
    (differing,) = found.differing
    assert differing.measurement is cold and differing.ratio == pytest.approx(1.3)
    proposal = propose(differing)
    assert proposal.by == "measured"
    assert proposal.choice is not None and proposal.choice.name == "triton_b"
    assert "measured: cold caches, triton_b 1.000 ms, triton_a 1.300 ms" in text(found)


@pytest.mark.parametrize("device", [0, 1])
def test_a_result_that_is_wrong_on_one_device_is_not_proposed(device: int) -> None:
    hash_ = f"triton_b-0123456789abcde{device}"
    wrong = Choice("triton_b", hash_, failed=True, reason="wrong result: 3 of 9")
    found = replace(measurement(1, {"bmm": 1.0}), failed=(wrong,))
    first, second = on_device(0, {**TIMES, "triton_b": 1.01}), on_device(1, OTHER)
    (differing,) = ranks(first, second).differing
    best = propose(differing).choice
    assert best is not None and best.name == "triton_b"
    (differing,) = ranks(first, replace(second, measured=found)).differing
    best = propose(differing).choice
    assert best is not None and best.name == "triton_a"


def test_a_proposal_counts_each_kernel_once_over_the_devices() -> None:
    (differing,) = ranks(on_device(0, TIMES), on_device(1, OTHER)).differing
    assert differing.unoffered == ()
    proposal = propose(differing)
    assert proposal.unoffered == () and proposal.choice is not None
    assert proposal.choice.name == "triton_a"  # 1.0 x 1.25 against 1.2 x 1.1 ms


def test_a_choice_that_may_be_there_under_another_hash_is_not_said_to_lack() -> None:
    bare = on_device(1, {"triton_b": 1.0, "bmm": 1.3})
    bare = replace(bare, choices=tuple(replace(c, identity=None) for c in bare.choices))
    first, second = took(0, on_device(0, TIMES)), took(1, bare)
    assert second.offered(first.choice) is None
    assert took(1, on_device(1, {"bmm": 1.3})).offered(first.choice) is False


def test_a_configuration_names_no_two_kernels() -> None:
    def described(index: int, *descriptions: str) -> Tuning:
        choices = [
            Choice(f"triton_mm_{at}", f"triton_mm-{index}{at}", 1.0, text)
            for at, text in enumerate(descriptions)
        ]
        return replace(on_device(index, {}), choices=tuple(choices))

    def names(*tunings: Tuning) -> list[list[str | None]]:
        return [[choice.identity for choice in each.choices] for each in identified(tunings)]

    a, b = described(0, "M=1", "M=2"), described(1, "M=2", "M=3")
    assert names(a, b) == [[None, "triton_mm-01"], ["triton_mm-01", None]]
    assert names(described(0, "M=1", "M=1"), described(1, "M=1")) == [[None, None], [None]]
    apart = [
        replace(each, choices=(replace(each.choices[0], identity=f"triton_mm-{n}"),))
        for n, each in enumerate((described(0, "M=1"), described(1, "M=1")))
    ]
    assert names(*apart, described(2, "M=1"))[2] == [None]
    extern = [replace(a, choices=(Choice("mm", f"mm-{n}", 1.0, "M=1"),)) for n in range(2)]
    assert names(*extern) == [[None], [None]]


def test_compare_says_what_agree_says() -> None:
    """Ranks agree on one problem; of one the logs have numbered names alone; one is rank 1's."""
    logs = [
        replace(log(n, times, source=f"/l/rank{rank}.log"), rank=rank)
        for n, rank, times in (
            (1, 0, {"bmm": 1.0, "mm": 1.2}),
            (1, 1, {"bmm": 1.1, "mm": 1.2}),
            (2, 0, {"triton_mm_4": 1.0, "bmm": 1.3}),
            (2, 1, {"triton_mm_9": 1.0, "bmm": 1.3}),
            (3, 1, {"bmm": 1.0}),
        )
    ]
    found = report(part(*logs))
    choosers = [Chooser(f"rank {rank}", "", rank) for rank in range(2)]
    taken = [Selection(choosers[t.rank or 0], Row("", t.id, 1, t), t.choices[0]) for t in logs]
    told = agreement(choosers, taken)
    assert (told.problems, told.compared, told.not_compared) == (3, 1, 2)
    (job,) = found.jobs
    assert (job.problems, job.compared, job.not_compared) == (3, 1, 2)
    assert job.differing == () == told.differing
    line = "1 of 1 problem agrees; 0 differ. 2 of 3 problems were not compared."
    assert footer(told)[0] == line
    assert line in report_text(found)
    assert [sentence for sentence, _ in pages(found)["ranks"].sentences] == footer(told)
    assert builtins_of(ReportJson.of(found))["not_compared_by_ranks"] == 2
    slower = replace(logs[1], choices=log(1, {"mm": 1.0, "bmm": 1.3}).choices)
    differ = report(part(logs[0], slower, *logs[2:]))
    (job,) = differ.jobs
    assert len(job.differing) == 1 and text(job) in report_text(differ)
    line = "0 of 1 problem agrees; 1 differs. 2 of 3 problems were not compared."
    assert line in report_text(differ)
    assert pages(differ)["ranks"].sentences[0][0] == line


def test_none_is_compared_where_names_are_numbers() -> None:
    logs = [
        replace(log(1, {f"triton_mm_{rank}": 1.0}, source=f"/l/rank{rank}.log"), rank=rank)
        for rank in range(2)
    ]
    (found,) = report(part(*logs)).jobs
    assert (found.compared, found.not_compared, found.untold) == (0, 1, 1)
    assert not found.agree and NOTHING in footer(found)


def test_processes_of_no_job_are_not_counted() -> None:
    alone = report(part(on_device(0, TIMES), on_device(0, TIMES, 2)))
    assert alone.jobs == ()
    (job,) = report(part(on_device(0, TIMES), on_device(1, TIMES), sessions=RANKS)).jobs
    assert job.compared == 1


def test_a_choice_whose_number_is_no_time_is_not_replaced_by_the_next() -> None:
    """`ls` names the choice of 0 ms as in use; `compare` and `report` name no other one."""
    best, second = Choice(name="mm", ms=0.0), Choice(name="triton_mm_1", ms=0.011)
    assert used(Tuning(op="mm", choices=(best, second))) is None
    assert used(Tuning(op="mm", choices=(second,))) == (second, 0.011)
