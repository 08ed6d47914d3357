"""Runs of fleets in words and JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backend.counted import counted
from backend.wire.codec import to_json
from rocm_tui.fleet.lines import Begun, Compiled
from rocm_tui.fleet.standing import AgentStanding, Standing, UnitStanding
from rocm_tui.session.numbers import running


def line_of_run(standing: Standing, now: float) -> str:
    """`12 of 40 tuned · 8 devices · 3.1 a minute · about 9 min to go`."""
    counts = standing.counts()
    working = [agent for agent in standing.agents.values() if agent.state in ("works", "waits")]
    rate, left = standing.rate(now), standing.seconds_left(now)
    parts = [
        f"{counts.merged + counts.done} of {counts.units} tuned",
        counted(counts.failed, "failure") if counts.failed else "",
        f"{counts.single} with one choice" if counts.single else "",
        counted(len(working), "device") if standing.agents else "waiting for devices",
        f"{rate:.1f} a minute" if rate is not None else "",
        f"about {running(left)} to go" if left and counts.left else "",
    ]
    return " · ".join(filter(None, parts))


def outcome(standing: Standing) -> str:
    """What came of a run, in a line."""
    counts = standing.counts()
    disagree = len(standing.disagreements())
    parts = [
        f"{counted(counts.merged, 'problem')} of {counts.units} tuned and in the cache",
        f"{counts.failed} failed" if counts.failed else "",
        _nothing_to_tune(counts.single),
        f"{counts.cancelled} cancelled" if counts.cancelled else "",
        f"{counts.left} left" if counts.left else "",
        f"devices disagree on {disagree}" if disagree else "",
    ]
    return ", ".join(filter(None, parts))


def _nothing_to_tune(many: int) -> str:
    """Of problems with one choice."""
    return f"{many} {'has' if many == 1 else 'have'} one choice: nothing to tune" if many else ""


def run_json(standing: Standing, lives: bool, now: float) -> dict[str, Any]:
    """All of it."""
    begun, counts = standing.begun or Begun("?"), standing.counts()
    return {
        "run": begun.run,
        "who": begun.who,
        "command": list(begun.command),
        "fleet": list(begun.fleet),
        "lives": lives,
        "started": standing.started,
        "last": standing.last,
        "units": counts.units,
        "merged": counts.merged,
        "failed": counts.failed,
        "cancelled": counts.cancelled,
        "single": counts.single,
        "left": counts.left,
        "a_minute": standing.rate(now),
        "seconds_left": standing.seconds_left(now),
        "system_hash": standing.chosen.system_hash if standing.chosen else None,
        "device_class": standing.chosen.device_class if standing.chosen else None,
        "reason": standing.over.reason if standing.over else None,
    }


def agents_json(agents: Mapping[str, AgentStanding]) -> list[dict[str, Any]]:
    return [
        {
            "agent": name,
            "state": agent.state,
            "why": agent.refused or agent.quarantined or agent.gone,
            "unit": agent.unit,
            "done": agent.done,
            "failed": agent.failed,
            "slow": agent.slow,
            "clock": agent.clock,
            "power": agent.power,
            "temperature": agent.temperature,
            "ahead": None if agent.ahead is None else _compiled(agent.ahead),
            "facts": to_json(agent.facts),
        }
        for name, agent in sorted(agents.items())
    ]


def _compiled(done: Compiled) -> dict[str, int]:
    """The choices that it has compiled ahead, found compiled, and failed at."""
    return {"compiled": done.compiled, "found": done.found, "failed": done.failed}


def units_json(units: Sequence[UnitStanding]) -> list[dict[str, Any]]:
    return [
        {
            "unit": unit.unit.id,
            "title": unit.unit.title,
            "state": unit.state,
            "agents": unit.agents,
            "reasons": list(unit.reasons) or ([unit.unmerged] if unit.unmerged else []),
            "merged_from": unit.merged.agent if unit.merged else None,
            "winner": unit.merged.winner if unit.merged else None,
            "holds": unit.merged.holds if unit.merged else None,
            "of": unit.merged.of if unit.merged else None,
            "part_of": unit.unit.part_of or None,
            "heats": unit.merged.heats if unit.merged else 0,
            "times_of_heats": unit.merged.told if unit.merged else 0,
            "times_raised": unit.merged.raised if unit.merged else 0,
        }
        for unit in units
    ]
