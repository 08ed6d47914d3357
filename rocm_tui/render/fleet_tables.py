"""The devices and problems of a fleet's run as tables, for the screen and `rocm-tui fleet show`."""

from __future__ import annotations

from dataclasses import dataclass

from backend.counted import counted
from backend.model.choice import Choice
from rocm_tui.fleet.lines import Compiled
from rocm_tui.fleet.standing import AgentStanding, Standing, UnitStanding, winner_of
from rocm_tui.harmless import plain
from rocm_tui.render.jobs import progress_text
from rocm_tui.render.table import Field
from rocm_tui.session import numbers as fmt

_NONE = "–"
_STYLES = {
    "works": "accent",
    "refused": "warn",
    "quarantined": "bad",
    "gone": "bad",
    "running": "accent",
    "failed": "bad",
    "cancelled": "dim",
    "single": "dim",
    "ended": "dim",
    "waiting": "dim",
    "waits": "dim",
}


@dataclass(frozen=True, slots=True)
class Device:
    """An agent and its device at a time, Unix seconds; `title` is of the problem at work."""

    name: str
    agent: AgentStanding
    title: str
    now: float

    @property
    def seconds(self) -> float | None:
        """How long it has been at its problem."""
        since = self.agent.since
        return None if since is None else max(0.0, self.now - since)


def devices_of(standing: Standing, now: float) -> list[Device]:
    """By name; one that works on nothing has no title."""
    titles = {id: unit.unit.title for id, unit in standing.units.items()}
    return [
        Device(name, agent, titles.get(agent.unit or "", ""), now)
        for name, agent in sorted(standing.agents.items())
    ]


def _does(device: Device) -> str:
    """What it works on, or why on nothing."""
    agent = device.agent
    why = agent.refused or agent.quarantined or agent.gone
    return plain(why or device.title or _ahead(agent.ahead))


def _ahead(done: Compiled | None) -> str:
    """What it has compiled ahead, where that is what it does."""
    if done is None:
        return ""
    choices = counted(done.compiled, "choice")
    return f"compiled {choices} ahead" + (f", {done.failed} failed" if done.failed else "")


def _progress(device: Device) -> str:
    progress = device.agent.progress
    return f"{progress.timed}/{progress.total}" if device.title and progress.total else ""


def device_line(device: Device) -> str:
    """All of what it does."""
    told = progress_text(device.agent.progress) if device.title else ""
    does = _does(device) or device.agent.state
    return plain(f"{device.name}: {does}{', ' if told else ''}{told}")


def _state(unit: UnitStanding) -> str:
    """A device is given the next problem while it works on another."""
    return "at hand" if unit.state == "running" and not unit.workers else unit.state


def unit_line(unit: UnitStanding) -> str:
    """All that is told of a problem."""
    parts = (_state(unit), _where(unit), _winner_text(unit), _told(unit))
    return plain(f"{unit.unit.title}: {', '.join(filter(None, parts))}")


def _slow(device: Device) -> str:
    slow = device.agent.slow
    return "" if slow is None else fmt.factor(slow)


def _measured(value: float | None, unit: str) -> str:
    return _NONE if value is None else f"{value:,.0f} {unit}"


def _rate(device: Device) -> str:
    """By the time that it worked; what it waited for others says nothing of the card."""
    agent = device.agent
    if not agent.done or agent.busy <= 0:
        return _NONE
    return f"{60 * agent.done / agent.busy:.1f}/min"


DEVICES: tuple[Field[Device], ...] = (
    Field(
        "device", "DEVICE", 8, 24, text=lambda device: plain(device.name), style="strong",
        about="its host and index, as the fleet calls it",
    ),
    Field(
        "state", "STATE", 7, 11, text=lambda device: device.agent.state,
        style=lambda device: _STYLES.get(device.agent.state, ""),
        about="works, waits, refused (another system), quarantined, gone, ended: with its driver",
    ),
    Field(
        "card", "CARD", 8, 26, drop=8, style="dim",
        text=lambda device: plain(device.agent.facts.device or device.agent.facts.arch or _NONE),
        about="the device's name",
    ),
    Field(
        "progress", "TIMED", 5, 9, drop=2, right=True, text=_progress, style="accent",
        about="choices that it has timed of the problem at work, of all",
    ),
    Field(
        "time", "TIME", 5, 11, drop=3, right=True, style="dim",
        text=lambda device: "" if device.seconds is None else fmt.running(device.seconds),
        about="since it has been at this problem",
    ),
    Field(
        "done", "DONE", 4, 6, right=True, text=lambda device: fmt.count(device.agent.done),
        about="problems that it tuned",
    ),
    Field(
        "failed", "FAIL", 4, 4, drop=4, right=True,
        text=lambda device: fmt.count(device.agent.failed) if device.agent.failed else "",
        style="bad", about="problems at which it failed",
    ),
    Field(
        "rate", "RATE", 7, 10, drop=5, right=True, text=_rate, style="dim",
        about="problems a minute of its own work",
    ),
    Field(
        "clock", "CLOCK", 8, 9, drop=6, right=True, style="dim",
        text=lambda device: _measured(device.agent.clock, "MHz"),
        about="of its processor now, as the device tells it",
    ),
    Field(
        "power", "POWER", 5, 7, drop=7, right=True, style="dim",
        text=lambda device: _measured(device.agent.power, "W"),
        about="that it takes now, as the device tells it",
    ),
    Field(
        "slow", "SLOW", 5, 7, drop=1, right=True, text=_slow, style="warn",
        about="its time over the median of all at the same first problem",
    ),
    Field(
        "does", "DOES", 20, 200, text=_does, fold=True,
        style=lambda device: "warn" if device.agent.refused else "",
        about="the problem at work, or why it gets none",
    ),
)  # fmt: skip
"""What is shown of a device."""


def _winner(unit: UnitStanding) -> Choice | None:
    """The fastest choice of the set that is in the cache, else of one that was measured."""
    merged = unit.merged.agent if unit.merged is not None else next(iter(unit.results), "")
    done = unit.results.get(merged)
    hash = winner_of(done.result) if done is not None else ""
    if done is None or done.result is None or not hash:
        return None
    return next(choice for choice in done.result.choices if choice.hash == hash)


def _winner_text(unit: UnitStanding) -> str:
    choice = _winner(unit)
    if choice is None:
        return ""
    return plain(f"{choice.label} {fmt.once(fmt.duration(choice.ms))}")


def _where(unit: UnitStanding) -> str:
    return plain(", ".join(unit.agents or unit.results))


def _took(unit: UnitStanding) -> str:
    merged = unit.results.get(unit.merged.agent) if unit.merged is not None else None
    done = merged or next(iter(unit.results.values()), None)
    return fmt.seconds(done.seconds) if done is not None and done.seconds else ""


def _holds(unit: UnitStanding) -> str:
    merged = unit.merged
    return f"{merged.holds} of {merged.of}" if merged is not None and merged.of > 1 else ""


def _differs(unit: UnitStanding) -> bool:
    return unit.merged is not None and unit.merged.holds < unit.merged.of


def _told(unit: UnitStanding) -> str:
    if unit.state in ("failed", "single"):
        return plain("; ".join(unit.reasons))
    if unit.unmerged and unit.state != "merged":
        return plain(f"measured, not in the cache: {unit.unmerged}")
    told = [f"{agent}: {why}" for agent, why in unit.tried.items()]
    return plain("; ".join([_of_heats(unit), *told] if _of_heats(unit) else told))


def _of_heats(unit: UnitStanding) -> str:
    """Which times in the cache are not the final's."""
    merged = unit.merged
    if merged is None or not merged.heats:
        return ""
    raised = f", {merged.raised} of them raised" if merged.raised else ""
    return f"final of {merged.heats} heats; {merged.told} more times are of heats{raised}"


UNITS: tuple[Field[UnitStanding], ...] = (
    Field(
        "state", "STATE", 7, 9, text=_state,
        style=lambda unit: _STYLES.get(_state(unit), ""),
        about="waiting, at hand: next there, running, done: measured, merged: in the cache, "
        "failed, single: one choice, nothing to tune",
    ),
    Field(
        "id", "ID", 7, 10, drop=6, text=lambda unit: plain(unit.unit.id), style="dim",
        about="of the problem, for `rocm-tui fleet cancel RUN ID`",
    ),
    Field(
        "what", "PROBLEM", 20, 40, text=lambda unit: plain(unit.unit.title), style="strong",
        about="the op, its operands and their type",
    ),
    Field(
        "where", "WHERE", 8, 30, drop=2, text=_where, style="dim",
        about="the devices that have it now, or that tuned it",
    ),
    Field(
        "took", "TOOK", 6, 11, drop=5, right=True, text=_took, style="dim",
        about="to tune it, on the device whose times count",
    ),
    Field(
        "holds", "HOLDS", 6, 9, drop=4, text=_holds,
        style=lambda unit: "warn" if _differs(unit) else "dim",
        about="on how many of the devices that tuned it this winner is fastest",
    ),
    Field(
        "winner", "FASTEST", 16, 60, drop=3, text=_winner_text,
        about="the choice with the least time there; ~ is of one measurement",
    ),
    Field(
        "note", "NOTE", 10, 200, drop=1, text=_told, fold=True,
        style=lambda unit: {"failed": "bad", "single": "dim"}.get(unit.state, "warn"),
        about="why it has no times in the cache, or where it failed first",
    ),
)  # fmt: skip
"""What is shown of a problem."""
