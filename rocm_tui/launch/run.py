"""`rocm-tui run`: the user's program, unchanged, with our hooks within its reach.

The child keeps our process group and terminal, so Ctrl-C and Ctrl-Z reach it as without us; what
is sent to us alone (SIGTERM, SIGHUP, SIGUSR1, ...) is passed on. We end as the child ends: with
its exit code, or by the same signal.
"""

from __future__ import annotations

import contextlib
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
from typing import Any, BinaryIO, Protocol

from backend.counted import counted
from backend.disk.layout import Layout
from backend.disk.layout import cache_dir as default_cache_dir
from backend.disk.safe import check_file, make_folder
from backend.errors import StoreError
from backend.inductor.hooks.environment import (
    ALL_DEVICES,
    CAPTURE,
    CHECK,
    MEASURE,
    SHARES,
    TEMPLATES,
)
from backend.processes.signals import die_by
from backend.ranks.job import AGREE, FOLDER
from rocm_tui import say
from rocm_tui.environment import hooked, hooks_forbidden
from rocm_tui.launch.record import PAUSE, RunRecord
from rocm_tui.launch.stderr import StderrRelay, TableFilter
from rocm_tui.launch.summary import measured_text, recorded, summary

HOLD_SECONDS = 0.1
"""How long `--quiet` holds the begun line of what may be a table."""

DRAIN_SECONDS = 0.2
"""How long we wait for stderr of what the child left running in the background."""

MOST_DRAIN_SECONDS = 2.0
"""As long at most, where that goes on writing."""

LOOK_SECONDS = 0.5
"""Between two looks at what the child leaves behind."""

_AOT_CACHE = "TORCHINDUCTOR_AUTOGRAD_CACHE"

_FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM")
_KEYS = ("SIGINT", "SIGQUIT")
"""A terminal sends these to the whole group by itself: then we only have to outlive them."""


class StatusLine(Protocol):
    """A line on our terminal, beside the program's stderr."""

    def look(self) -> None:
        """Called at least each half second."""

    def wrote(self, data: bytes) -> None:
        """Called before the program's bytes are passed on."""

    def clear(self) -> None:
        """The program has ended."""


MakeLine = Callable[[Layout, str], StatusLine | None]
"""The line for a run of this id, whose logs lie below this cache dir; None for no line."""


TellRanks = Callable[[Layout, str, Sequence[Path]], str]
"""What is to be said of a run's ranks, and of others of their job, that these logs tell of; empty
for nothing."""


class Child:
    """The running program: its signals, and its stderr where a relay passes that on.

    Without a relay `look` is called now and then while it runs.
    """

    def __init__(
        self,
        relay: StderrRelay | None = None,
        look: Callable[[], None] = lambda: None,
        record: RunRecord | None = None,
        line: StatusLine | None = None,
    ) -> None:
        self._line = line
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
            if self._relay is None:
                self._wait(process, wake)
            else:
                self._until_exit(process, self._relay, wake)
                _drain(self._relay)
        if self._record is not None:
            self._record.exited(process.returncode)
        if self._relay is not None:
            self._relay.close()
        return process.returncode

    def _start(self, command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        if self._relay is None:
            return subprocess.Popen(command, env=env)
        try:
            return subprocess.Popen(command, env=env, stderr=self._relay.child_end)
        finally:
            self._relay.child_started()

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
            select.select([wake], [], [], LOOK_SECONDS)
            _clear(wake)
            self._look()

    def _until_exit(self, process: subprocess.Popen[bytes], relay: StderrRelay, wake: int) -> None:
        sources = [relay.descriptor, wake]
        while process.poll() is None:
            timeout = HOLD_SECONDS if relay.holds else self._rest()
            ready, _, _ = select.select(sources, [], [], timeout)
            if wake in ready:
                _clear(wake)
            if relay.descriptor in ready and not relay.pump():
                sources = [wake]  # the child closed its stderr and goes on
            if not ready:
                relay.release()
            if self._record is not None:
                self._record.look()
            if self._line is not None:
                self._line.look()

    def _rest(self) -> float | None:
        """Seconds until the next look at the child, while there is something to see of it."""
        if self._record is not None and self._record.waits:
            return PAUSE
        return None if self._line is None else LOOK_SECONDS


def _clear(wake: int) -> None:
    with contextlib.suppress(BlockingIOError):
        os.read(wake, 4096)


def _drain(relay: StderrRelay) -> None:
    until = time.monotonic() + MOST_DRAIN_SECONDS
    while time.monotonic() < until and select.select([relay.descriptor], [], [], DRAIN_SECONDS)[0]:
        if not relay.pump():
            return


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


def run(
    command: Sequence[str],
    *,
    quiet: bool = False,
    max_autotune: bool = False,
    templates: bool = False,
    check: bool = False,
    shares: bool = True,
    capture: bool = False,
    cache_triton: bool = False,
    agree: float | None = None,
    agree_dir: Path | None = None,
    all_devices: bool = False,
    measure_kernels: float = 0.0,
    cache_dir: Path | None = None,
    env: Mapping[str, str] = os.environ,
    id: str | None = None,
    make_line: MakeLine = lambda layout, run: None,
    tell_ranks: TellRanks = lambda layout, run, logs: "",
) -> int:
    """Run `command` and return its exit code; 127 if it does not exist, 126 if it cannot run.

    A child that a signal killed takes us with it by the same signal, so that a shell sees what it
    would have seen; where that signal does not kill us, 128 + its number is returned. `id` names
    the run, where somebody looks for its logs. With `agree` the ranks of a job take their choices
    from each other, and wait so many seconds for one; with 0 they do not, whatever `env` says.
    With `all_devices` times are kept for all devices of the kind of the one that measured them.
    """
    child_env = dict(env)
    if cache_dir is not None:
        child_env["TORCHINDUCTOR_CACHE_DIR"] = str(cache_dir.absolute())
    if max_autotune:
        child_env["TORCHINDUCTOR_MAX_AUTOTUNE"] = "1"
    if templates:
        child_env[TEMPLATES] = "1"
    if check:
        child_env[CHECK] = "1"
    if not shares:
        child_env[SHARES] = "0"
    if capture:
        # A graph that comes from AOTAutograd's cache is not seen; FxGraphCache stays as it is.
        child_env |= {CAPTURE: "1", SHARES: "1", _AOT_CACHE: "0"}
    if measure_kernels:
        child_env[MEASURE] = str(measure_kernels)
    if cache_triton:
        child_env["TRITON_CACHE_AUTOTUNING"] = "1"
    if agree is not None:
        child_env[AGREE] = f"{agree:g}"
    if all_devices:
        child_env[ALL_DEVICES] = "1"
    if agree_dir is not None:
        child_env[FOLDER] = str(agree_dir.absolute())
    forbidden = hooks_forbidden(child_env)
    if forbidden:
        _say(forbidden)
    this = _Run(id or run_id(), Layout(default_cache_dir(child_env)), time.time())
    line = make_line(this.layout, this.id)
    wrote = line.wrote if line is not None else None
    relay = StderrRelay(lambda: _open_log(this), TableFilter() if quiet else None, wrote)
    record = RunRecord(this.layout, this.id, command)
    try:
        child = Child(relay, record=record, line=line)
        status = child.run(command, hooked(child_env, this.id))
    except OSError as error:
        relay.close()
        return _cannot_start(command[0], error)
    if line is not None:
        line.clear()
    found = recorded(this.layout, this.id, this.started)
    timed = 0
    if cache_triton:
        from rocm_tui.launch.kernels import timed_since  # few runs ask for it

        timed = timed_since(this.layout.root, child_env, this.started)
    if (quiet or relay.terminal or found.nothing_tuned) and not (timed and found.nothing):
        _say(summary(found, this.layout))
    logs = (*found.ranks, *found.others)
    if child_env.get(AGREE, "0") != "0" and found.ranks and len(logs) > 1:
        told = tell_ranks(this.layout, this.id, logs)
        if told:
            _say(told)
    if measure_kernels:
        _say(measured_text(found))
    if cache_triton:
        _say(f"{counted(timed, 'tuning')} of @triton.autotune kept; `rocm-tui ls` lists them")
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
        """What the program wrote to stderr, byte for byte, beside the event logs."""
        return self.layout.sessions / f"{self.id}.stderr.log"


def _open_log(this: _Run) -> BinaryIO | None:
    try:
        make_folder(this.layout.root, this.log.parent)
        check_file(this.layout.root, this.log)
        return this.log.open("xb", buffering=0)
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
