"""`rocm-tui run`: start the user's program, unchanged, with our hooks on its path, record what the
run itself sees, and report at the end.

The child keeps our process group and terminal, so Ctrl-C and Ctrl-Z reach it as without us; what
is sent to us alone (SIGTERM, SIGHUP, SIGUSR1, ...) is passed on. We end as the child ends: with
its exit code, or by the same signal.

The run records the beginning of the program, torch being imported, and the end. The program's own
log begins when torch is there.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from backend.disk.layout import Layout
from backend.disk.layout import cache_dir as default_cache_dir
from backend.disk.safe import check_file, make_folder
from backend.disk.sessions import EventWriter
from backend.errors import StoreError
from backend.inductor.hooks.environment import (
    ALL_DEVICES,
    CAPTURE,
    CHECK,
    MEASURE,
    OPTIONS,
    SHARES,
    TEMPLATES,
    rank,
    wanted_version,
)
from backend.model.events import ActivityChanged, Event, ProcessExited, SessionStarted
from backend.model.graph import CompileOption
from backend.model.session import Session
from backend.processes import tree
from backend.processes.tree import die_by, identity
from backend.ranks.job import AGREE, FOLDER
from rocm_tui import say
from rocm_tui.environment import hooked, hooks_forbidden
from rocm_tui.launch.stderr import BoundedLog, StatusLine, StderrRelay, TableFilter

RUN_LOG = ".run.jsonl"
"""Ends the name of such a log, which lies among those of the programs."""

LOOK_PAUSE = 0.2
"""Seconds between two looks."""

PATIENCE = 120.0
"""Seconds; a program that has not begun to import torch by then is not looked at any more."""

_TORCH = b"/libtorch"


class RunRecord:
    """The log of a run. What cannot be written is left out: the program matters more."""

    def __init__(self, layout: Layout, run: str, command: Sequence[str]) -> None:
        self._layout = layout
        self._run = run
        self._command = tuple(command)
        self._writer: EventWriter | None = None
        self._pid = 0
        self._due = self._last = 0.0

    @property
    def waits(self) -> bool:
        """Whether `look` may still see something."""
        return self._last > 0

    def started(self, pid: int) -> None:
        """The program runs."""
        session = Session(
            id=f"{self._run}-{pid}",
            host=socket.gethostname(),
            pid=pid,
            rank=rank(),
            argv=self._command,
            cache_dir=str(self._layout.root),
            started=time.time(),
            locked=True,  # by its EventWriter
            process=identity(pid),
        )
        self._pid = pid
        self._last = time.monotonic() + PATIENCE
        path = self._layout.sessions / f"{self._run}{RUN_LOG}"
        self._writer = EventWriter(self._layout, session, path)
        self._write(SessionStarted(session))

    def look(self) -> None:
        """See whether the program itself has begun to load torch; of one that it starts in its turn
        this is not seen."""
        now = time.monotonic()
        if not self.waits or now < self._due:
            return
        self._due = now + LOOK_PAUSE
        try:
            loads = _TORCH in tree.mapped(self._pid)
        except OSError:  # it has ended, or this is no Linux
            self._last = 0.0
            return
        if loads:
            self._write(ActivityChanged(time.time(), "importing"))
        if loads or now > self._last:
            self._last = 0.0

    def exited(self, status: int) -> None:
        """The program has ended: with this exit code, or by minus this signal."""
        self._last = 0.0
        if self._writer is not None:
            self._write(ProcessExited(time.time(), status))
            self._writer.close()

    def _write(self, event: Event) -> None:
        if self._writer is not None:
            self._writer.write(event)


LOOK_SECONDS = 0.5
"""Between two looks at what the child leaves behind."""

_AOT_CACHE = "TORCHINDUCTOR_AUTOGRAD_CACHE"

_FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM")
_KEYS = ("SIGINT", "SIGQUIT")
"""A terminal sends these to the whole group: then we only have to outlive them."""


MakeLine = Callable[[Layout, str], StatusLine | None]
"""Returns the status line for a run of this id with its logs in this cache dir, if it has one."""


class Child:
    """The running program: its signals, and its stderr where a relay passes that on.

    `look` is called now and then while it runs.
    """

    def __init__(
        self,
        relay: StderrRelay | None = None,
        look: Callable[[], None] = lambda: None,
        record: RunRecord | None = None,
    ) -> None:
        self._relay = relay
        self._look = look
        self._record = record
        self._process: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def run(self, command: Sequence[str], env: Mapping[str, str]) -> int:
        """The exit code, or minus the signal. Raises OSError if the command cannot be started."""
        with self._signals() as wake:
            self._process = process = self._start(command, env)
            if self._record is not None:
                self._record.started(process.pid)
            for number in self._early:
                process.send_signal(number)
            self._wait(process, wake)
            if self._relay is not None:
                self._relay.end()
        if self._record is not None:
            self._record.exited(process.returncode)
        return process.returncode

    def _start(self, command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        # What we inherited is for the program: `<(...)`, `3>file`. All that we open is not passed.
        if self._relay is None:
            return subprocess.Popen(command, env=env, close_fds=False)
        self._relay.start()
        try:
            stderr = self._relay.child_end
            return subprocess.Popen(command, env=env, stderr=stderr, close_fds=False)
        finally:
            os.close(self._relay.child_end)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[int]:
        """Our handlers; the result becomes readable at each signal. What is ignored stays so."""
        reading, writing = os.pipe()
        for end in (reading, writing):
            os.set_blocking(end, False)
        handlers = dict.fromkeys(_FORWARDED, self._forward)
        handlers.update(dict.fromkeys(_KEYS, self._key_pressed))
        handlers.update(SIGCHLD=_outlive, SIGWINCH=self._resized)
        before: dict[int, Any] = {}
        for name, handler in handlers.items():
            number = getattr(signal, name)
            if name == "SIGCHLD" or signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, handler)
        wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        try:
            yield reading
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(reading)
            os.close(writing)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if self._process is None:
            self._early.append(number)
        else:
            self._process.send_signal(number)

    def _key_pressed(self, number: int, frame: FrameType | None) -> None:
        if not _in_foreground():
            self._forward(number, frame)

    def _resized(self, number: int, frame: FrameType | None) -> None:
        if self._relay is not None:
            self._relay.follow_size()
        self._forward(number, frame)  # its own may have come before the size was right

    def _wait(self, process: subprocess.Popen[bytes], wake: int) -> None:
        while process.poll() is None:
            looks = self._record is not None and self._record.waits
            select.select([wake], [], [], LOOK_PAUSE if looks else LOOK_SECONDS)
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
            if self._record is not None:
                self._record.look()
            self._look()


def _in_foreground() -> bool:
    """Whether a terminal sends its keys' signals to our process group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _outlive(number: int, frame: FrameType | None) -> None:
    """Not ignored, since a child would inherit that."""


NOT_FOUND, NOT_EXECUTABLE = 127, 126
"""Exit codes, as a shell's."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `rocm-tui run`.

    `id` names the run, where somebody looks for its logs. With `agree` the ranks of a job take
    their choices from each other, and wait that many seconds for each; with 0 they do not, whatever
    the environment says. With `all_devices` times are kept for all devices of the kind of the one
    that measured them. `measure_kernels` are seconds for one kernel. Without
    `summary` no lines are printed at the end.
    """

    quiet: bool = False
    max_autotune: bool = False
    templates: bool = False
    check: bool = False
    shares: bool = True
    capture: bool = False
    cache_triton: bool = False
    agree: float | None = None
    agree_dir: Path | None = None
    all_devices: bool = False
    measure_kernels: float = 0.0
    summary: bool = True
    cache_dir: Path | None = None
    id: str | None = None
    options: Sequence[CompileOption] = ()

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return `env` as the program gets it, without our hooks."""
        # A graph that comes from AOTAutograd's cache is not seen; FxGraphCache stays as it is.
        captured = {CAPTURE: "1", SHARES: "1", _AOT_CACHE: "0"} if self.capture else {}
        variables = {
            "TORCHINDUCTOR_CACHE_DIR": str(self.cache_dir.absolute()) if self.cache_dir else "",
            "TORCHINDUCTOR_MAX_AUTOTUNE": "1" if self.max_autotune else "",
            TEMPLATES: (wanted_version(env) or "1") if self.templates else "",
            CHECK: "1" if self.check else "",
            SHARES: "" if self.shares else "0",
            MEASURE: str(self.measure_kernels) if self.measure_kernels else "",
            "TRITON_CACHE_AUTOTUNING": "1" if self.cache_triton else "",
            AGREE: "" if self.agree is None else f"{self.agree:g}",
            ALL_DEVICES: "1" if self.all_devices else "",
            OPTIONS: json.dumps({o.name: o.value for o in self.options}) if self.options else "",
            FOLDER: str(self.agree_dir.absolute()) if self.agree_dir else "",
        }
        return {**env, **{name: text for name, text in variables.items() if text}, **captured}


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run that has ended, for the report on it.

    `status` is the exit code, or minus the signal. `env` is the program's environment without our
    hooks, and `forbidden` why torch does not load hooks in it, if it does not. `terminal` is
    whether stderr is a terminal. `started` is Unix time.
    """

    id: str
    command: Sequence[str]
    options: RunOptions
    layout: Layout
    env: Mapping[str, str]
    started: float
    status: int
    terminal: bool
    forbidden: str | None


Report = Callable[[FinishedRun], Sequence[str]]
"""Returns the lines that are printed at the end of a run."""


def run(
    command: Sequence[str],
    options: RunOptions,
    env: Mapping[str, str] = os.environ,
    *,
    make_line: MakeLine = lambda layout, run: None,
    report: Report = lambda run: (),
) -> int:
    """Run `command` and return its exit code; 127 if it does not exist, 126 if it cannot run.

    A child that a signal killed takes us with it by the same signal, so that a shell sees what it
    would have seen; where that signal does not kill us, 128 + its number is returned.
    """
    child_env = options.environment(env)
    forbidden = hooks_forbidden(child_env)
    if forbidden:
        _say(forbidden)
    this = _Run(options.id or run_id(), Layout(default_cache_dir(child_env)), time.time())
    line = make_line(this.layout, this.id)
    relay = StderrRelay(lambda: _open_log(this), TableFilter() if options.quiet else None, line)
    record = RunRecord(this.layout, this.id, command)
    try:
        status = Child(relay, record=record).run(command, hooked(child_env, this.id))
    except OSError as error:
        relay.end()
        return _cannot_start(command[0], error)
    finished = FinishedRun(
        id=this.id,
        command=command,
        options=options,
        layout=this.layout,
        env=child_env,
        started=this.started,
        status=status,
        terminal=relay.terminal,
        forbidden=forbidden,
    )
    lines = report(finished)
    if lines:
        say.begin_line(begun=relay.mid_line)
    for text in lines:
        _say(text)
    if status >= 0:
        return status
    sys.stdout.flush()
    return die_by(-status)


def run_id() -> str:
    """Names a run; the ids of its sessions begin with it."""
    host = "".join(c if c.isalnum() or c in ".-" else "_" for c in socket.gethostname())[:64]
    return f"{host}-{os.getpid()}-{int(time.time())}-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class _Run:
    id: str
    layout: Layout
    started: float

    @property
    def log(self) -> Path:
        """What the program wrote to stderr, byte for byte unless it is long, beside the event
        logs."""
        return self.layout.sessions / f"{self.id}.stderr.log"


def _open_log(this: _Run) -> BoundedLog | None:
    try:
        make_folder(this.layout.root, this.log.parent)
        check_file(this.layout.root, this.log)
        return BoundedLog(this.log)
    except (StoreError, OSError) as error:
        _say(f"stderr is not kept: {error}")
        return None


def _cannot_start(name: str, error: OSError) -> int:
    if isinstance(error, FileNotFoundError):
        _say(f"{name}: no such command")
        return NOT_FOUND
    _say(f"{name}: cannot be run: {error.strerror}")
    return NOT_EXECUTABLE


def _say(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        say.err(line, flush=True)
