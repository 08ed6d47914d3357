"""Programs that run beside the screen, under `rocm-tui run`: started by this screen, or by another
one that left them running.

A program has a session and a terminal of its own, which shows lines only (`TERM=dumb`), and no
input: keys are the screen's, so a Ctrl-C there does not reach it. A separate process (`copier`)
writes the output to a file, byte for byte; of very long output the file keeps the end. So a program
survives the screen and its terminal, and ends when somebody ends it. Another screen finds it by
what its run recorded, and shows that file.

Output is shown as lines, made harmless; the last ones are kept. A carriage return begins the line
again, as progress bars have it. Cursor moves and colours are taken out.
"""

from __future__ import annotations

import codecs
import contextlib
import fcntl
import math
import os
import re
import select
import shlex
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
import tty
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from backend.disk.layout import Layout
from backend.disk.safe import check_file, make_folder, open_regular
from backend.disk.sessions import is_released, read_log
from backend.model.events import ProcessExited, SessionStarted
from backend.model.session import Session
from backend.processes.tree import lives
from rocm_tui.environment import COMMAND
from rocm_tui.harmless import clean, plain
from rocm_tui.launch.copier import DROPPED, LOST
from rocm_tui.launch.run import RUN_LOG, run_id

MOST_LINES = 10_000
MOST_CHARACTERS = 4_000
"""Characters of one line; what is longer goes on in the next."""
_SLACK = 1_000
"""Lines that are dropped in one go."""


class OutputLines:
    """The lines are numbered from 0 on; of those, `first` and later are kept. Safe to use from two
    threads."""

    def __init__(self, most: int = MOST_LINES) -> None:
        self.first = 0
        self._most = most
        self._lines: list[str] = []
        self._begun = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._skips = False
        self._lock = threading.Lock()

    def feed(self, data: bytes) -> None:
        """Take what was read next; pieces may be cut anywhere."""
        *whole, begun = (self._begun + self._decoder.decode(data)).split("\n")
        if self._skips and whole:
            self._skips, whole = False, whole[1:]
        elif self._skips:
            return
        with self._lock:
            if len(whole) > self._most:
                self._forget(len(self._lines) + len(whole) - self._most)
                whole = whole[-self._most :]
            for text in whole:
                self._lines += _pieces(_last_writing(text))
            self._begun = begun
            if len(begun) > MOST_CHARACTERS:
                self._begun = _last_writing(begun)[:MOST_CHARACTERS]
                if "\r" not in begun:
                    self._lines += _pieces(begun)
                    self._begun = ""
            beyond = len(self._lines) - self._most
            if beyond >= min(_SLACK, self._most):
                self._forget(beyond)

    def skip(self) -> None:
        """What is fed next does not follow what was fed last, and may begin within a line."""
        with self._lock:
            self._forget(len(self._lines))
            self._begun, self._skips = "", True
            self._decoder.reset()

    def _forget(self, count: int) -> None:
        del self._lines[:count]
        self.first += count

    @property
    def end(self) -> int:
        """How many lines have ended so far."""
        return self.first + len(self._lines)

    @property
    def begun(self) -> str:
        """The line that has not ended; empty where there is none."""
        return clean(_last_writing(self._begun))

    def since(self, number: int) -> tuple[int, list[str]]:
        """The lines from `number` on that are kept, and the number of the first of them."""
        with self._lock:
            start = max(number, self.first)
            return start, self._lines[start - self.first :]

    def last(self, count: int) -> list[str]:
        """The last lines that say something, the begun one too."""
        with self._lock:
            tail = self._lines[-4 * count :]
        lines = [line for line in (*tail, self.begun) if line.strip()]
        return lines[-count:]


def _last_writing(text: str) -> str:
    """Return what is left of a line that was begun anew with each carriage return."""
    return text.rstrip("\r").rpartition("\r")[2]


def _pieces(text: str) -> list[str]:
    text = clean(text)
    ends = range(0, max(1, len(text)), MOST_CHARACTERS)
    return [text[at : at + MOST_CHARACTERS] for at in ends]


OUTPUT = ".output.log"
"""Ends the name of such a file, which lies among the logs of sessions."""
_TAIL = 1 << 20
"""Bytes at the end of a file that are shown, where more came than can be taken in."""
_MARK = 200
"""Bytes at its beginning and end in which the copier says what is not there."""
_DROPPED = re.compile(re.escape(DROPPED).replace(b"%d", rb"(\d{1,18})"))
_HARDER = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)


class Program:
    """One that writes its output to `log`. Subclasses know how it is started and found."""

    pid: int | None = None
    code: int | None = None
    """Its exit code, minus the signal that ended it; None while it runs or where nobody saw it."""
    seconds: float | None = None
    """How long it ran; None: it runs."""

    def __init__(self, title: str, log: Path, began: float) -> None:
        self.title = plain(title)
        self.log = log
        self.began = began
        self.lines = OutputLines()
        self.cut = False
        """Whether `lines` begin in the middle of what it wrote."""
        self.dropped = 0
        """Bytes at the beginning that the file has no more."""
        self.lost = ""
        """Why a part of its output is not in the file, as far as that was seen; else empty."""
        self.unread = ""
        """Why the last look into the file failed; empty where it did not."""
        self._file: BinaryIO | None = None
        self._at = self._base = 0  # in all that it wrote: what is taken next, the file's beginning
        self._listeners: tuple[Callable[[], None], ...] = ()
        self._sent = 0

    # What a screen asks.

    @property
    def running(self) -> bool:
        return self.seconds is None

    @property
    def ending(self) -> str:
        """How it ended; empty while it runs."""
        return "" if self.running else ending(self.code)

    @property
    def age(self) -> float:
        """Seconds that it runs, or ran."""
        return time.time() - self.began if self.seconds is None else self.seconds

    @property
    def next_signal(self) -> signal.Signals:
        """What `press` sends next: Ctrl-C first, then what cannot be refused."""
        return _HARDER[min(self._sent, len(_HARDER) - 1)]

    # What a screen does.

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        """Have `heard` called, from another thread, at each output and at the end; what is given
        back ends that."""
        self._listeners = (*self._listeners, heard)

        def hush() -> None:
            self._listeners = tuple(each for each in self._listeners if each is not heard)

        return hush

    def press(self) -> None:
        """Ask it to end, the next time harder."""
        number, self._sent = self.next_signal, self._sent + 1
        self.send(number)

    def send(self, number: signal.Signals) -> None:
        """Send it this signal, if it runs."""
        raise NotImplementedError

    def resize(self, width: int, height: int) -> None:
        """Give its terminal this size, where that is ours."""

    # What subclasses have in common.

    def open_log(self) -> None:
        """Raises OSError."""
        file = open_regular(self.log)
        try:
            head = _DROPPED.match(os.pread(file.fileno(), _MARK, 0))
        except OSError:
            file.close()
            raise
        self._file = file
        if head:
            self.dropped = int(head[1])
            self._base = self.dropped - head.end()

    def take_or_say(self) -> bool:
        """Do what `take` does; a look that fails (on a network: ESTALE, EIO) is said in `unread`
        until another one succeeds. False where nothing is new."""
        before, self.unread = self.unread, ""
        try:
            new = self.take()
        except OSError as error:
            new, self.unread = False, error.strerror or str(error)
        return new or self.unread != before

    def take(self) -> bool:
        """Take in what is in the file by now; of much, the end. False where nothing is new. Raises
        OSError."""
        if self._file is None:
            return False
        self._reopen()
        number = self._file.fileno()
        end = self._base + os.fstat(number).st_size
        start = max(self._at, self.dropped, end - _TAIL)
        if start > self._at:
            self.lines.skip()
            self.cut = True
        data = os.pread(number, max(0, end - start), start - self._base)
        self._at = start + len(data)
        self.lines.feed(data)
        return self._look_for_loss() or bool(data)

    def _reopen(self) -> None:
        """Go on with the file that the copier put in the place of a long one. On a network file
        system the replaced one can no longer be looked at."""
        old = self._file
        if old is None:
            return
        with contextlib.suppress(OSError):
            if os.path.samestat(self.log.stat(), os.fstat(old.fileno())):
                return
        with contextlib.suppress(OSError):
            self.open_log()  # before the old one is closed: where this fails, that is still read
            old.close()

    def _look_for_loss(self) -> bool:
        """What could not be written may have been said over what was read before."""
        if self.lost or self._file is None:
            return False
        number = self._file.fileno()
        end = os.pread(number, _MARK, max(0, os.fstat(number).st_size - _MARK))
        _, mark, why = end.partition(LOST)
        self.lost = plain(why.partition(b"]")[0].decode("utf-8", "replace")) if mark else ""
        return bool(mark)

    def ring(self) -> None:
        for heard in self._listeners:
            heard()


def ending(code: int | None) -> str:
    """`exit code 0`, `signal 9, SIGKILL`; `ended` where nobody saw how."""
    if code is None:
        return "ended"
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"signal {-code}, {signal.Signals(-code).name}"
    except ValueError:
        return f"signal {-code}"


_REST = 0.05
"""Seconds between two looks at what a program writes."""
_DRAIN = 0.5
"""Seconds that its end waits for that of its output, which what it left running may hold open."""
_PATIENCE = 10.0
"""Seconds that the program has to end in order."""
_COPIER = Path(__file__).with_name("copier.py")


class Launched(Program):
    """Starts at `start`."""

    def __init__(
        self,
        command: Sequence[str],
        layout: Layout,
        *,
        options: Sequence[str] = (),
        title: str = "",
        env: Mapping[str, str] = os.environ,
    ) -> None:
        """`options` are those of `rocm-tui run`; `title` is how it is called, else by its words."""
        run = run_id()
        log = layout.sessions / f"{run}{OUTPUT}"
        super().__init__(title or shlex.join(command), log, time.time())
        self._layout = layout
        ours = ["--no-summary", "--id", run, "--cache-dir", str(layout.root)]
        self._words = [*COMMAND, "run", *options, *ours, "--", *command]
        self._env = {**env, "TERM": "dumb"}
        self._process: subprocess.Popen[bytes] | None = None
        self._copier: subprocess.Popen[bytes] | None = None
        self._terminal = -1

    # What a screen does.

    def start(self) -> None:
        """Raises OSError and UnsafePath, where its output cannot be kept."""
        make_folder(self._layout.root, self.log.parent)
        check_file(self._layout.root, self.log)
        self._terminal, theirs = os.openpty()
        bell, rope = os.pipe()
        tty.setraw(theirs)  # what it writes arrives as it is
        self.resize(*_size())
        self.began = time.time()
        try:
            self.log.touch(exist_ok=False)
            self._copier = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_COPIER), str(rope), str(self.log)],
                stdin=self._terminal,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[rope],
                start_new_session=True,
            )
            self.open_log()
            self._process = subprocess.Popen(
                self._words,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            )
        finally:
            os.close(theirs)
            os.close(rope)
        self.pid = self._process.pid
        threading.Thread(target=self._follow, args=(bell,), name="output", daemon=True).start()

    def resize(self, width: int, height: int) -> None:
        terminal = self._terminal  # the thread that follows the output may close it meanwhile
        if terminal < 0:
            return
        with contextlib.suppress(OSError):
            size = struct.pack("HHHH", height, width, 0, 0)
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)

    def end(self) -> None:
        """End it with all of its process group, politely first, and wait; safe to call again."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process is None or not self.running:
                return
            self.send(number)
            until = time.monotonic() + _PATIENCE
            while self.running and time.monotonic() < until:
                time.sleep(0.02)

    def send(self, number: signal.Signals) -> None:
        process = self._process
        if process is None or not self.running:
            return
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)  # `run` passes it on

    # In our own threads.

    def _follow(self, bell: int) -> None:
        """Until nobody can write any more: what the program left running may write after its end.
        Then the terminal is closed, so that nobody waits for a reader who is gone."""
        process, copier = self._process, self._copier
        assert process is not None and copier is not None
        ended, exited = os.pipe()
        threading.Thread(target=_wait, args=(process, exited), name="exit", daemon=True).start()
        waiting, until = [bell, ended], math.inf
        while waiting:
            rest = max(0.0, until - time.monotonic())
            if self.unread:
                rest = min(rest, _PAUSE)  # nobody rings when the file can be read again
            ready, _, _ = select.select(waiting, [], [], None if rest == math.inf else rest)
            rung = os.read(bell, 1 << 16) if bell in ready else b""
            if bell in ready and not rung:
                waiting.remove(bell)
                self._close_terminal()
                copier.wait()
            failed = max(rung, default=0)
            if failed and not self.lost:
                self.lost = os.strerror(failed)
            if self.take_or_say() or failed:
                self.ring()
            if ended in ready:
                waiting.remove(ended)
                until = time.monotonic() + _DRAIN
            if until < math.inf and (bell not in waiting or time.monotonic() >= until):
                until = math.inf
                self._ended(process)
            if rung:  # a flood is taken in now and then: keys come first
                select.select([ended] if ended in waiting else [], [], [], _REST)
        os.close(bell)
        os.close(ended)

    def _close_terminal(self) -> None:
        terminal, self._terminal = self._terminal, -1
        os.close(terminal)

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        self.code = process.wait()
        self.seconds = time.time() - self.began
        self.ring()


def _wait(process: subprocess.Popen[bytes], exited: int) -> None:
    process.wait()
    os.close(exited)  # which makes the other end readable


def _size() -> tuple[int, int]:
    try:
        size = os.get_terminal_size(2)
    except OSError:
        return 100, 40
    return size.columns or 100, size.lines or 40


_PAUSE = 0.5
"""Seconds between two looks, while somebody shows it."""
_MOST = 20
"""Files that are looked into, the newest first."""


class Detached(Program):
    """Follows its file while somebody listens."""

    def __init__(self, log: Path, session: Session) -> None:
        super().__init__(shlex.join(session.argv), log, session.started)
        self.pid = session.pid
        self._session = session
        self._watching: threading.Thread | None = None
        self.look()

    def look(self) -> bool:
        """See how it does, and what it has written; False where that is nothing new."""
        if not self.running:
            return False
        over = _is_over(self.log, self._session)
        if self._file is None:
            with contextlib.suppress(OSError):
                self.open_log()
        new = self.take_or_say()
        _, end = _record(self.log)
        if end is None and not over:
            return new
        if end is not None:
            self.code, self.seconds = end.status, max(0.0, end.when - self.began)
        else:  # nobody saw its end
            self.seconds = max(0.0, self._written() - self.began)
        return True

    def _written(self) -> float:
        try:
            return self.log.stat().st_mtime
        except OSError:
            return self.began

    def listen(self, heard: Callable[[], None]) -> Callable[[], None]:
        hush = super().listen(heard)
        if self._watching is None and self.running:
            self._watching = threading.Thread(target=self._watch, name="detached", daemon=True)
            self._watching.start()
        return hush

    def _watch(self) -> None:
        pause = threading.Event()
        while self._listeners and self.running:
            pause.wait(_PAUSE)
            if self.look():
                self.ring()
        self._watching = None

    def send(self, number: signal.Signals) -> None:
        if self.pid is not None and lives(self._session.process):
            with contextlib.suppress(OSError):  # it is another's, or has just ended
                os.kill(self.pid, number)


@dataclass(frozen=True, slots=True)
class KeptProgram:
    """One that a screen started, and the file of its output."""

    log: Path
    session: Session
    running: bool


def kept_programs(layout: Layout) -> list[KeptProgram]:
    """Return the running programs, then the ended ones, newest first."""
    programs = []
    for log in _newest(layout.sessions):
        session, end = _record(log)
        if session is not None:
            running = end is None and not _is_over(log, session)
            programs.append(KeptProgram(log, session, running))
    return sorted(programs, key=lambda program: (not program.running, -program.session.started))


def _newest(folder: Path) -> list[Path]:
    written: list[tuple[float, Path]] = []
    for path in folder.glob(f"*{OUTPUT}"):
        with contextlib.suppress(OSError):
            written.append((path.stat().st_mtime, path))
    return [path for _, path in sorted(written, reverse=True)[:_MOST]]


def _run_log(log: Path) -> Path:
    return log.with_name(log.name.removesuffix(OUTPUT) + RUN_LOG)


def _is_over(log: Path, session: Session) -> bool:
    """Return whether the program has ended, and `run` writes no more about it: it records the end
    a moment after the program is gone."""
    alive = lives(session.process)
    if alive is None and session.host == socket.gethostname():
        # It is of before a reboot, or of another container: then the lock alone says that it ended.
        return session.locked and is_released(_run_log(log))
    return alive is False and (not session.locked or is_released(_run_log(log)))


def _record(log: Path) -> tuple[Session | None, ProcessExited | None]:
    """What `run` wrote of the program with this output: who it is, and its end."""
    events, _ = read_log(_run_log(log))
    started = next((e.session for e in events if isinstance(e, SessionStarted)), None)
    return started, next((e for e in events if isinstance(e, ProcessExited)), None)
