"""Start the screen on a terminal: may it be used, is it still there, leave it as it was.

Textual runs no clean-up on a hang-up or SIGTERM, spins on a terminal that is gone when SIGHUP is
ignored, and draws in full colour on `TERM=dumb`.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from backend.disk.layout import Layout
from rocm_tui import say
from rocm_tui.errors import RocmTuiError

if TYPE_CHECKING:  # types only: most screens start no program
    from rocm_tui.launch.program import Launched

_GRACE = 2.0
"""Seconds for the screen to close in an orderly way before it is ended."""
_ORDERLY = 30.0
"""Seconds for what is done after that: a program that shall end has 10 s, and 10 s more."""

_ENDS = (
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
)
"""Signals that end a program by default, which would leave the terminal in the screen's mode."""

_RESTORE = (
    b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?2004l\x1b[?1004l\x1b[<u"
    b"\x1b[?7h\x1b[?1049l\x1b[?25h"
)


class NoTerminal(RocmTuiError):
    """There is no terminal to draw a screen on."""


def require_terminal(env: Mapping[str, str] = os.environ) -> None:
    """Raise `NoTerminal` if a screen cannot be drawn."""
    if env.get("TERM", "") in ("", "dumb"):
        name = env.get("TERM") or "not set"
        raise NoTerminal(
            f"TERM is {name}: this terminal cannot show a screen; "
            f"`rocm-tui ls` prints the same tunings"
        )
    if not sys.__stdout__ or not sys.__stdout__.isatty():
        raise NoTerminal("stdout is not a terminal; `rocm-tui ls` prints the same tunings")
    if not sys.__stderr__ or not sys.__stderr__.isatty():
        raise NoTerminal("stderr, where the screen is drawn, is not a terminal; start without `2>`")


def keyboard_apart_from_stdin() -> None:
    """Read keys from the terminal if stdin is none: `... | rocm-tui watch -`."""
    try:
        keyboard = Path("/dev/tty").open()  # noqa: SIM115 - open as long as the program runs
    except OSError as error:
        raise NoTerminal(f"stdin is no terminal, and there is none for keys: {error}") from None
    sys.__stdin__ = keyboard  # type: ignore[misc] # where Textual's driver looks for keys


def _keyboard() -> int:
    return sys.__stdin__.fileno() if sys.__stdin__ is not None else 0


@contextmanager
def leaving(leave: Callable[[int], None]) -> Iterator[threading.Event]:
    """Call `leave(128 + signal)` on each signal of `_ENDS` and when the terminal is gone.

    `leave` runs in a signal handler or a thread. Set the event that this yields when the screen is
    closed. If that is not done within a grace time, the process is blocked on the terminal: that is
    restored as far as it can be, and the process ends.
    """
    attributes = _attributes()
    gone, closed, done = threading.Event(), threading.Event(), threading.Event()

    def start(code: int) -> None:
        if gone.is_set():
            return
        gone.set()
        threading.Thread(target=_end, args=(code, attributes, closed, done), daemon=True).start()
        leave(code)

    def handle(number: int, frame: FrameType | None) -> None:
        start(128 + number)

    before = {number: signal.signal(number, handle) for number in _ENDS}
    if before[signal.SIGHUP] is signal.SIG_IGN:
        # `nohup` asked for it, but a screen without a terminal is of no use; see _hung_up.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    watching = threading.Thread(target=_hung_up, args=(start,), name="hang-up", daemon=True)
    watching.start()
    try:
        yield closed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        gone.set()
        done.set()


def _attributes() -> list[object] | None:
    try:
        return list(termios.tcgetattr(_keyboard()))
    except termios.error:
        return None


def _hung_up(start: Callable[[int], None]) -> None:
    """Poll until the terminal hangs up; no other event is polled for."""
    poll = select.poll()
    poll.register(_keyboard(), 0)
    if any(flags & (select.POLLHUP | select.POLLERR) for _, flags in poll.poll()):
        start(128 + signal.SIGHUP)


def _end(
    code: int, attributes: list[object] | None, closed: threading.Event, done: threading.Event
) -> None:
    """End the process when the orderly way is blocked."""
    if closed.wait(_GRACE):
        done.wait(_ORDERLY)
        threading.Event().wait(_GRACE)  # for the interpreter, which waits for some threads
    with suppress(OSError):
        os.set_blocking(1, False)
        os.write(1, _RESTORE)
    if attributes is not None:
        with suppress(termios.error):
            termios.tcsetattr(_keyboard(), termios.TCSANOW, attributes)  # type: ignore[arg-type]
    os._exit(code)


def run_watch(
    paths: Sequence[Path | str],
    *,
    cache_dir: Path,
    polling: bool = False,
    python: str | None = None,
    launched: Launched | None = None,
    read_only: bool = False,
) -> int:
    """Show the screen until the person leaves; return the exit code.

    Without `paths` the cache dir is watched. `-` is what is piped into stdin. `python` is the
    interpreter for workers, `launched` a program to start with the screen.
    With `read_only` no key writes or starts anything.

    Raises:
        NoTerminal: there is no terminal that a screen can be drawn on.
        OSError, UnsafePath: `launched` cannot be started.
    """
    served = "web_driver" in os.environ.get("TEXTUAL_DRIVER", "")
    if not served:  # `rocm-tui serve` gives the program a pair of pipes for a terminal
        require_terminal()
        typed = sys.__stdin__ is not None and sys.__stdin__.isatty()  # may be closed, or /dev/null
        if not typed or any(str(path) == "-" for path in paths):
            keyboard_apart_from_stdin()
    from rocm_tui.tui.app import RocmTui  # Textual is heavy, and the terminal may be none

    if launched is not None:
        launched.start()
    app = RocmTui(
        paths,
        Layout(cache_dir),
        polling=polling,
        python=python,
        launched=launched,
        read_only=read_only,
    )

    def leave(code: int) -> None:
        app.call_from_any_thread(partial(app.exit, code, code))

    with leaving(leave) as closed:
        try:
            app.run()
        finally:
            closed.set()
            app.stop_feed()
            if app.memory.unwritten:
                with suppress(OSError, ValueError):
                    say.err(f"the last choices are not remembered: {app.memory.unwritten}")
            if launched is not None and launched.running:
                _leave_program(launched, stop=app.stops_program)
    return app.return_code or 0


def _leave_program(launched: Launched, *, stop: bool) -> None:
    """It goes on, however we end, unless the person wants it to end; that may take its time, and
    the screen is gone by then."""
    says = f"{launched.title} goes on (pid {launched.pid}); its output: {launched.log}"
    if stop:
        says = f"ending {launched.title}: killed if it takes more than 10 s"
    with suppress(OSError, ValueError):
        say.err(says, flush=True)
    if stop:
        launched.end()
