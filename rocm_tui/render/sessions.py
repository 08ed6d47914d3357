"""Sessions as `rocm-tui sessions` and the screen show them, and as JSON."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from backend.model.session import Activity, Session
from rocm_tui.harmless import plain
from rocm_tui.json_output import JsonObject, fill
from rocm_tui.render.table import Field, text_table
from rocm_tui.session import numbers as fmt
from rocm_tui.session.sessions import WORKER, is_worker

if TYPE_CHECKING:  # the words of a state need none of it
    from rocm_tui.report.sessions import SessionRow

_DAY = 86400.0
MOST_COMMAND = 200


def state_text(activity: Activity, *, short: bool = False, now: float | None = None) -> str:
    """`tuning bmm, 3 of 12`, `done, exit code 1`, `died by SIGKILL`; `short` leaves the op out.
    What waits for another rank says how long, where `now` is given."""
    if activity.state == "waiting" and now is not None and activity.since is not None:
        seconds = fmt.running(max(0.0, now - activity.since))
        return f"{_doing(activity, short)}, {seconds}"
    if activity.state == "unknown":
        return f"unknown, last {_doing(activity, short)}"
    if activity.state == "done":
        return f"done, exit code {activity.status}" if activity.status else "done"
    if activity.state == "died":
        return f"died by {_signal(-activity.status)}" if activity.status else "died"
    return _doing(activity, short)


def _doing(activity: Activity, short: bool) -> str:
    if activity.last_state == "importing":
        return "importing torch"
    if activity.last_state == "waiting":
        op = "" if short else f" of {plain(activity.op, 30)}"
        return f"waits for rank {activity.rank}'s choice{op}"
    if activity.last_state not in ("precompiling", "tuning"):
        return activity.last_state
    op = "" if short else f" {plain(activity.op, 30)},"
    return f"{activity.last_state}{op} {activity.done} of {activity.total}"


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _state_style(row: SessionRow) -> str:
    activity = row.activity
    if activity.state == "died" or (activity.state == "done" and activity.status):
        return "bad"
    return "accent" if activity.lives and activity.state != "running" else ""


def words_text(argv: Sequence[str]) -> str:
    """A command's words, as they could be typed."""
    words = [plain(word, MOST_COMMAND) for word in argv]
    return fmt.shorten(shlex.join(words), MOST_COMMAND)


def _brief_command(row: SessionRow) -> str:
    """Without the folders of the program, and of the Python that runs it."""
    if is_worker(row.session):
        return WORKER
    words = [plain(word, MOST_COMMAND) for word in row.session.argv]
    for at, word in enumerate(words[:3]):
        if "/" in word and not word.startswith("-"):
            words[at] = word.rsplit("/", 1)[1] or word
    return fmt.shorten(" ".join(words), MOST_COMMAND)


def moment(seconds: float, now: float) -> str:
    """The time of day, for what began within a day, else the date."""
    if not seconds:
        return fmt.NONE
    form = "%H:%M:%S" if abs(now - seconds) < _DAY else "%Y-%m-%d"
    return time.strftime(form, time.localtime(seconds))


def _device(row: SessionRow) -> str:
    session = row.session
    if session.device == "cpu":
        return "CPU" if not session.arch else f"CPU {plain(session.arch)}"
    return plain(session.device or session.arch or "", 40) or fmt.NONE


def modes_text(session: Session | None) -> str:
    """Return the unusual ways of autotuning of a session; empty if none is known."""
    return ", ".join(plain(mode, 20) for mode in (session and session.modes) or ())


SESSIONS: tuple[Field[SessionRow], ...] = (
    Field(
        "name", "SESSION", 12, 40, text=lambda row: f"{'  ' * row.member}{plain(row.name)}",
        style=lambda row: "strong" if row.activity.lives else "", name="id",
        about="host and pid of the process; its ranks are below the one that started them",
    ),
    Field(
        "started", "STARTED", 8, 10, drop=3, style="dim",
        text=lambda row: moment(row.session.started, time.time()),
        about="the time of day, or the date of an older one",
    ),
    Field(
        "state", "STATE", 16, 42, good=34,
        text=lambda row: state_text(row.activity, now=time.time()), style=_state_style,
        about="what the process does; died: it ended without saying so; unknown: it cannot be "
        "seen from here whether it lives",
    ),
    Field(
        "rank", "RANK", 4, 4, drop=4, right=True, about="in a distributed job",
        text=lambda row: "" if row.session.rank is None else str(row.session.rank),
    ),
    Field(
        "torch", "TORCH", 6, 14, drop=5, text=lambda row: plain(row.session.torch) or fmt.NONE,
        style="dim", about="its version of PyTorch",
    ),
    Field(
        "device", "DEVICE", 6, 26, drop=6, text=_device, style="dim",
        about="what it compiles for, once that is known",
    ),
    Field(
        "modes", "MODES", 5, 24, drop=8, style="dim",
        text=lambda row: modes_text(row.session) or fmt.NONE,
        about="unusual ways of autotuning that were on: origami, pipelined, profiler, incremental",
    ),
    Field(
        "tuned", "TUNED", 5, 6, right=True, text=lambda row: fmt.count(row.tuned or None),
        about="how many tunings it timed the choices of",
    ),
    Field(
        "cached", "CACHED", 6, 6, drop=2, right=True, style="dim",
        text=lambda row: fmt.count(row.cached or None),
        about="how many it took from a cache or a pin, and timed nothing",
    ),
    Field(
        "took", "TOOK", 6, 10, drop=7, right=True, style="dim",
        text=lambda row: fmt.seconds(row.seconds) if row.seconds else fmt.NONE,
        about="what its tunings took, as far as that is recorded",
    ),
    Field(
        "command", "COMMAND", 10, 200, drop=1, short=_brief_command,
        text=lambda row: words_text(row.session.argv), about="the words that started it",
    ),
)  # fmt: skip


def ended_text(row: SessionRow, now: float) -> str:
    """`vm-5163, tuning bmm, 3 of 12 for 12 s`, `vm-5163, done, 4 min ago`."""
    activity = row.activity
    text = f"{plain(row.name)}, {state_text(activity)}"
    if activity.ended is not None:
        return f"{text}, {fmt.seconds(max(0.0, now - activity.ended))} ago"
    if activity.lives and activity.since is not None:
        return f"{text}, for {fmt.seconds(max(0.0, now - activity.since))}"
    return text


def sessions_text(rows: Iterable[SessionRow]) -> str:
    """Return a line for each session; columns that are empty for all are left out."""
    listed = list(rows)
    empty = ("", fmt.NONE)
    fields = [
        f for f in SESSIONS if f.key == "tuned" or any(f.text(r) not in empty for r in listed)
    ]
    return text_table(fields, listed)


class SessionJson(JsonObject):
    """A process that tuned; times are Unix seconds, unknown values are null."""

    id: str
    session: str
    host: str
    pid: int
    rank: int | None
    argv: tuple[str, ...]
    python: str
    torch: str
    device: str | None
    arch: str | None
    compute_units: int | None
    modes: tuple[str, ...] | None
    cache_dir: str | None
    run: str | None
    started: float | None
    ended: float | None
    state: str
    last: str
    op: str
    done: int
    total: int
    since: float | None
    awaited_rank: int | None
    exit_status: int | None
    tuned: int
    cached: int
    seconds: float
    logs: tuple[str, ...]

    @classmethod
    def of(cls, row: SessionRow) -> SessionJson:
        session, activity = row.session, row.activity
        return fill(
            cls,
            session,
            activity,
            row,
            id=row.name,
            session=session.id,
            cache_dir=session.cache_dir or None,
            run=row.process.run or None,
            started=session.started or None,
            last=activity.last_state,
            awaited_rank=activity.rank,
            exit_status=activity.status,
            logs=tuple(row.process.logs),
        )
