"""Describe in Watch what the watched processes and the program of this screen do."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from backend.model.session import Activity, ActivityState
from rocm_tui.harmless import plain
from rocm_tui.render.plot import bar
from rocm_tui.render.sessions import state_text
from rocm_tui.render.table import Line, Span
from rocm_tui.session import numbers as fmt
from rocm_tui.session.sessions import Processes, SessionProcess, script

if TYPE_CHECKING:  # loaded where a program was started, which most screens do not
    from rocm_tui.launch.program import Launched

_BUSY: frozenset[ActivityState] = frozenset(
    ("importing", "compiling", "precompiling", "tuning", "waiting")
)
_BAR = 12
_MOST = 8
"""The maximum number of processes listed."""
_TAIL = 6
"""Lines of its output that Watch shows while there is nothing else to show."""


def facts(launched: Launched | None, processes: Processes) -> list[str]:
    """Return facts for the title of Watch: what is loading, compiling or tuning; else the program's
    state."""
    busy = [process for process in processes.live if process.activity.state in _BUSY]
    if len(busy) == 1:
        return [f"{_name(busy[0])}: {state_text(busy[0].activity, short=True)}"]
    if busy:
        counts = Counter(process.activity.state for process in busy)
        return [
            f"{len(busy)} processes: {', '.join(f'{n} {state}' for state, n in counts.items())}"
        ]
    if launched is None:
        return []
    if launched.code is not None:
        return [f"program: {launched.ending} (0)"]
    return ["program running (0)"]


def lines(launched: Launched | None, processes: Processes, width: int, *, tail: bool) -> list[Line]:
    """Describe each process; for the program of this screen also the `tail` of its output."""
    process_lines = [_process_line(process) for process in _shown(processes)]
    if launched is None:
        return process_lines
    title = fmt.shorten(launched.title, max(20, width - 24))
    if launched.code is None:
        state = (f"  running {fmt.running(launched.age)}", "dim")
    else:
        state = (f"  {launched.ending}", "good" if launched.code == 0 else "bad")
    if launched.running and not process_lines:
        process_lines = [(("    starting", "accent"),)]
    shown: list[Line] = [((f"  {title}", "strong"), state), *process_lines]
    if not tail:
        return shown
    last = launched.lines.last(_TAIL)
    return [
        *shown,
        (),
        *(((f"    {fmt.shorten(line, max(20, width - 6))}", "dim"),) for line in last),
        (_rest(launched),),
    ]


def _rest(launched: Launched) -> Span:
    if launched.lost:
        return f"  Its output is lost: {launched.lost}", "warn"
    return "  0 shows all its output", "dim"


def _shown(processes: Processes) -> list[SessionProcess]:
    """Return the live processes, busy ones first; else the latest one."""
    live = sorted(processes.live, key=lambda process: process.activity.state not in _BUSY)
    latest = [] if live or processes.latest is None else [processes.latest]
    return [*live[:_MOST], *latest]


def _process_line(process: SessionProcess) -> Line:
    activity, session = process.activity, process.session
    rank = "" if session.rank is None else f" rank {session.rank}"
    who = f"    {_name(process)}{rank}"
    counted = activity.state in ("precompiling", "tuning") and activity.total
    done = f"  {bar(activity.done / activity.total, _BAR)}" if counted else ""
    return (
        (who.ljust(24) + " ", ""),
        (f"pid {session.pid}".ljust(14), "dim"),
        (_state(activity), "accent" if activity.state in _BUSY else "dim"),
        (done, "accent"),
    )


def _state(activity: Activity) -> str:
    waits = activity.state == "running"
    return "torch is loaded, not compiling" if waits else state_text(activity, now=time.time())


def _name(process: SessionProcess) -> str:
    return fmt.shorten(plain(script(process.session)) or "a program", 20)
