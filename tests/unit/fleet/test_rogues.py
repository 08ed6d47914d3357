"""Agents that are not what they should be, as real child processes: another version of the program,
or a host that lies. Nothing of theirs gets into the cache, and no run goes on for ever."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.wire.jobs import TuneResult
from rocm_tui.actions.fleet import Run, Wanted
from rocm_tui.fleet import lines, pipe
from rocm_tui.fleet.merger import misfit
from rocm_tui.fleet.messages import Gone, Offer
from rocm_tui.fleet.pipe import Pipes, Start
from rocm_tui.fleet.record import Reader
from rocm_tui.render.fleets import outcome
from rocm_tui.say import visible
from tests.support.waiting_agent import waiting_unit

PROGRAM = """
import json, sys
def say(**words): print(json.dumps(words), flush=True)
facts = {"host": "\\x1b]0;title\\x07box\\u202e", "device": "\\x1b[2J", "system_hash": "5" * 64}
say(**{"is": "hello", "agent": "x", "facts": facts})
for line in sys.stdin:
    told = json.loads(line)
    if told["is"] == "offer":
        for words in ANSWERS:
            lent = {"agent": "x", "lease": told["lease"], "unit": told["unit"]["id"]}
            say(**{**lent, "facts": facts, **words})
"""
BEAT = {"is": "beat", "leases": ["90", "91"]}
RESULT = {"ok": True, "op": "mm", "inputs": "[1]", "precision": "highest", "times": {"h": 1.0}}


def answers(*words: object) -> Start:
    """An agent that answers each offer so."""
    program = PROGRAM.replace("ANSWERS", repr(json.loads(json.dumps(words))))
    return Start((sys.executable, "-c", program))


def worked(root: Path, start: Start) -> Run:
    wanted = Wanted(fleet=("test",), canary=False)
    with Run.begin(Layout(root), wanted, [waiting_unit(1, 1.0)]) as run:
        run.work(Pipes({"a": start}, again=(0.1,)))
    return run


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"op": "\x1b[31mbmm"}, "another problem"),
        ({"inputs": "[2]"}, "another problem"),
        ({"precision": "high"}, "another problem"),
        ({"times": {"h": -1.0}}, "below zero"),
        ({"times": {"h": "nan", "g": 1.0}}, "no number"),
        ({"times": {"h": "nan", "g": -1.0}}, "below zero"),
    ],
)
def test_what_is_no_result_of_the_problem_is_a_failure(
    tmp_path: Path, wrong: dict[str, object], why: str
) -> None:
    run = worked(tmp_path, answers({"is": "done", "result": RESULT | wrong}))
    (unit,) = run.standing.units.values()
    assert unit.state == "failed" and why in unit.reasons[0]
    assert not list(tmp_path.glob("cache/*"))


def test_a_result_whose_key_was_not_known_before_has_its_op() -> None:
    job = waiting_unit(1, 1.0).job
    typed = type(job)("mm")
    assert misfit(typed, TuneResult(ok=True, op="mm", inputs="[7]", precision="high")) == ""
    assert misfit(typed, TuneResult(ok=True, op="bmm", inputs="[7]", precision="high"))


def test_what_nobody_lent_is_not_in_the_record_and_lost_work_ends(tmp_path: Path) -> None:
    run = worked(tmp_path, answers(*[BEAT] * 3))
    (unit,) = run.standing.units.values()
    assert unit.state == "failed" and "no result" in unit.reasons[0]
    assert not [line for _, line in Reader(run.path).news() if isinstance(line, lines.Ended)]
    text = outcome(run.standing)
    assert visible(text) == text and "\u202e" not in text


def test_an_agent_that_reads_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe, "UNREAD", 1 << 20)
    fleet = Pipes({"a": Start(("sleep", "600"))}, again=())
    try:
        unit = waiting_unit(1, 1.0, "mm" * 60_000)
        for number in range(20):
            fleet.offer("a", Offer(str(number), unit))
        (gone,) = fleet.results(0.0)
        assert isinstance(gone, Gone) and "does not read" in gone.reason
        assert not list(fleet.agents)
    finally:
        fleet.stop()


def test_another_protocol_is_refused_in_words_that_say_what_to_do(tmp_path: Path) -> None:
    program = PROGRAM.replace('"facts": facts})', '"facts": facts, "protocol": 9})', 1)
    start = Start((sys.executable, "-c", program.replace("ANSWERS", "[]")))
    run = worked(tmp_path, start)
    refused = run.standing.agents["a"].refused
    assert "speaks protocol 9, this one 1: upgrade the older one" in refused
    assert run.standing.counts().left == 1
