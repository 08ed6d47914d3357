"""Which problems the ranks of a job took different choices for, and which one is proposed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from backend.model.choice import Choice, Measurement
from rocm_tui.json_output import builtins_of
from rocm_tui.render.agree import AgreementJson, footer, text, who
from rocm_tui.report.agreement import Agreement, Chooser, Selection, System, agreement, propose
from rocm_tui.session.graphs import Share
from rocm_tui.session.model import Row
from tests.support.compare_lab import measurement, tuning

ANY = System()
AB, BA = {"bmm": 1.0, "triton_a": 1.2}, {"bmm": 1.25, "triton_a": 1.1}


def rank(number: int, **more: object) -> Chooser:
    return replace(Chooser(f"rank {number} box", "", number, "box"), **more)  # type: ignore[arg-type]


def took(
    by: Chooser,
    times: Mapping[str, float | None],
    n: int = 1,
    *,
    took: str = "",
    system: System = ANY,
    measured: Measurement | None = None,
    calls: int | None = None,
    when: float = 1.0,
) -> Selection:
    """What the fastest of these is, or `took`."""
    told = replace(tuning(n, times, session=by.name, when=when), measured=measured)
    choice = next(c for c in told.choices if c.name == took or not took)
    share = None if calls is None else Share("p", calls)
    return Selection(by, Row("", told.id, 1, told, share=share), choice, system)


def told(*taken: Selection, ranks: int = 0, across: bool = False) -> Agreement:
    choosers = list(dict.fromkeys(each.by for each in taken))
    return agreement(choosers, taken, ranks=ranks, across=across)


def test_who_took_what_is_grouped_and_each_pair_counted() -> None:
    found = told(
        *(took(rank(n), AB if n < 6 else BA) for n in range(8)),
        *(took(rank(n), AB, 2) for n in range(8)),
    )
    assert not found.agree and found.compared == 2
    (one,) = found.differing
    groups = [
        (group.choice.name, who(each.by for each in group.selections)) for group in one.groups
    ]
    assert groups == [("bmm", "ranks 0-5"), ("triton_a", "ranks 6-7")]
    assert one.standing == "apart" and one.ratio == pytest.approx(1.2)
    assert footer(found)[0] == "1 of 2 problems agrees; 1 differs."
    (pair,) = found.pairs
    assert (pair.both, pair.same) == (2, 1)
    assert builtins_of(AgreementJson.of(found))["problems"][0]["groups"][1]["taken"][1]["rank"] == 7


def test_all_agree_only_where_it_was_seen() -> None:
    assert told(took(rank(0), AB), took(rank(1), AB)).agree
    assert told(took(rank(0), AB), took(rank(1), AB), ranks=2).agree
    missing = told(took(rank(0), AB), took(rank(2), AB), ranks=3)
    assert not missing.agree and missing.missing == (1,)
    assert "rank 1 is missing" in footer(missing)[-1]
    alone = told(took(rank(0), AB), took(rank(1), AB, 2))
    assert not alone.agree and alone.compared == 0 and alone.alone == 2
    assert not told().agree
    hosts = [Chooser(name, name) for name in "ab"]
    assert told(*(took(host, AB) for host in hosts), ranks=3).lacking == 1


def test_the_latest_that_a_rank_took_counts() -> None:
    assert told(took(rank(0), BA), took(rank(0), AB, when=2.0), took(rank(1), AB)).agree


def test_systems_are_compared_apart() -> None:
    big, small = System("h", "gfx942", 304), System("h", "gfx942", 80)
    taken = [took(rank(0), AB, system=big), took(rank(1), BA, system=small)]
    found = told(*taken)
    assert found.compared == 0 and found.apart == 1 and not found.agree
    assert "--across" in "".join(footer(found))
    assert len(told(*taken, across=True).differing) == 1
    # What tells less is of the system that it fits alone.
    found = told(*taken[:1], took(rank(2), BA, system=System("h")))
    assert len(found.differing) == 1
    assert told(*taken, took(rank(2), BA, system=System("h"))).compared == 0


def test_what_was_not_offered_is_said_and_not_proposed() -> None:
    taken = [took(rank(0), AB, took="triton_a"), took(rank(1), {"bmm": 1.3})]
    (one,) = told(*taken).differing
    assert [(c.name, [w.rank for w in lacking]) for c, lacking in one.unoffered] == [
        ("triton_a", [1])
    ]
    assert "rank 1 was not offered triton_a" in text(told(*taken))
    proposal = propose(one)
    assert proposal.choice is not None and proposal.choice.name == "bmm"
    apart = told(took(rank(0), {"triton_a": 1.0}), took(rank(1), {"bmm": 1.3}))
    proposal = propose(apart.differing[0])
    assert proposal.choice is None and "offered to all" in proposal.why_not
    assert propose(apart.differing[0], force=True).choice is None  # nobody timed both


def test_a_measurement_decides_before_timings() -> None:
    timed = [took(rank(0), AB), took(rank(1), BA)]
    (one,) = told(*timed).differing
    proposal = propose(one)
    assert proposal.choice is not None and proposal.choice.name == "bmm"
    assert proposal.by == "timings"
    cold = measurement(1, {"bmm": 1.3, "triton_a": 1.0}, caches="cold")
    (one,) = told(timed[0], took(rank(1), BA, measured=cold)).differing
    proposal = propose(one)
    assert proposal.choice is not None and proposal.choice.name == "triton_a"
    assert proposal.by == "measured" and one.ratio == pytest.approx(1.3)
    shown = text(told(timed[0], took(rank(1), BA, measured=cold)), [])
    assert "measured: cold caches, triton_a 1.000 ms, bmm 1.300 ms +30.0 % slower" in shown


def test_a_measured_tie_is_decided_by_the_times_of_all() -> None:
    tie = measurement(1, {"bmm": 1.0, "triton_a": 1.001}, caches="cold")
    tie = replace(tie, choices=tuple(replace(c, verdict="tied") for c in tie.choices))
    taken = [took(rank(0), AB, measured=tie), took(rank(1), BA, measured=tie)]
    found = told(*taken)
    (one,) = found.differing
    assert one.standing == "tied" and "tie" in text(found)
    proposal = propose(one)
    assert proposal.by == "tie" and proposal.choice is not None and proposal.choice.name == "bmm"
    loose = {"verdict": "unclear", "ratio_low": 0.0, "ratio_high": math.inf}
    unclear = replace(tie, choices=tuple(replace(c, **loose) for c in tie.choices))
    taken = [took(rank(0), AB, measured=unclear), took(rank(1), BA, measured=unclear)]
    found = told(*taken)
    proposal = propose(found.differing[0])
    assert proposal.by == "timings" and found.differing[0].standing == "unclear"
    assert "by timings, the cold measurement is unclear" in text(found, [proposal])


def test_a_wrong_or_failed_choice_is_never_proposed() -> None:
    wrong = Choice(
        name="bmm", hash="bmm-0123456789abcdef", failed=True, reason="wrong result: 3 of 9"
    )
    found = replace(measurement(1, {"triton_a": 1.0}), failed=(wrong,))
    (one,) = told(took(rank(0), AB, measured=found), took(rank(1), BA)).differing
    proposal = propose(one)
    assert proposal.choice is not None and proposal.choice.name == "triton_a"
    failed = took(rank(2), {"bmm": None, "triton_a": 2.0, "triton_b": 1.0})
    (one,) = told(took(rank(0), AB), took(rank(1), BA), failed).differing
    proposal = propose(one)
    assert proposal.choice is not None and proposal.choice.name == "triton_a"


def test_the_largest_possible_loss_comes_first() -> None:
    many = [took(rank(0), AB, 2, calls=100), took(rank(1), BA, 2, calls=100)]
    large = {"bmm": 10.0, "triton_a": 12.0}
    few = [took(rank(0), large), took(rank(1), large, took="triton_a")]
    ties = [took(rank(0), {"bmm": 90.0, "triton_a": 91.0}, 3)]
    ties.append(took(rank(1), {"bmm": 91.0, "triton_a": 90.0}, 3))
    order = [each.calls for each in told(*few, *ties, *many).differing]
    assert order == [100, None, None]
    assert [each.standing for each in told(*few, *ties, *many).differing] == [
        "apart",
        "apart",
        "tied",
    ]


def test_a_name_without_a_hash_is_not_compared_with_a_hash() -> None:
    """Nor is a numbered one with another number: Inductor numbers its choices as they come."""
    bare = took(rank(1), {"triton_mm_4": 1.0})
    bare = replace(bare, choice=Choice(name="triton_mm_4", ms=1.0))
    found = told(took(rank(0), AB), bare)
    assert found.compared == 0 and found.untold == 1 and not found.agree
    config = Choice(name="triton_mm_4", description="BLOCK_M=64", ms=1.0)
    both = [replace(took(rank(n), {"bmm": 1.0}), choice=config) for n in range(2)]
    assert told(*both).agree
    other = replace(both[1], choice=replace(config, name="triton_mm_9", description="BLOCK_M=32"))
    assert len(told(both[0], other).differing) == 1


def test_it_fits_a_terminal_and_obeys_no_file() -> None:
    evil = Chooser("evil\x1b[2J\u202e" * 9, "\x1b]52;c;x\x07", None)
    odd = {"bmm\x1b[2J" * 20: 1.0, "triton_a": 1.2}
    found = told(took(evil, odd), took(rank(1), BA), took(rank(2), AB))
    proposals = [propose(each) for each in found.differing]
    for width in (60, 80):
        lines = text(found, proposals, width).split("\n")
        assert all(len(line) <= width or " " not in line.strip() for line in lines[:2])
        assert not any("\x1b" in line or "\u202e" in line for line in [*lines, *footer(found)])
