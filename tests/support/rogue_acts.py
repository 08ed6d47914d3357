"""What a choice should never do, each as `act(a, b, out)` by name.

Some end or block the process, some damage it, some leave others behind, some lie. What is left
running has `MARK` in its environment, so that a test finds it; it ends by itself after a while.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from backend.processes import tree

MARK = "LEFT_BY_A_ROGUE"
LIFE = 120
"""Seconds, if nobody ends it."""
FORKS = 500

_SPIN = f"import time; e = time.time() + {LIFE}\nwhile time.time() < e: pass"
_DEAF = f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep({LIFE})"


def _right(a: Any, b: Any, out: Any) -> None:
    import torch

    torch.bmm(a, b, out=out)


def _child(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def _sleep() -> None:
    time.sleep(LIFE)


def _spin() -> NoReturn:
    exec(_SPIN)
    os._exit(0)


def _daemon(work: Callable[[], object]) -> None:
    """The double fork: its parent is gone, its session is its own."""

    def middle() -> None:
        os.setsid()
        _child(work)

    os.waitpid(_child(middle), 0)


def _bomb(apart: bool, spin: bool = False) -> None:
    """A bounded one: each of a few goes on forking until the time is over."""
    end = time.time() + 1.0
    for _ in range(FORKS // 8):
        if time.time() > end:
            break

        def branch() -> None:
            if apart:
                os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            for _ in range(7):
                _child(_spin if spin else _sleep)
            _sleep()

        _child(branch)


def _everywhere(data: bytes, times: int = 1) -> None:
    for number in range(3, 256):
        for _ in range(times):
            with contextlib.suppress(OSError):
                if os.get_blocking(number):
                    os.set_blocking(number, False)
                os.write(number, data)


FORGED = b'\n{"id": 1, "event": "result", "result": {"ok": true, "measurement": null}}\n'


def _open_in(pid: int | str) -> dict[Path, str]:
    found: dict[Path, str] = {}
    with contextlib.suppress(PermissionError):  # the supervisor's, unless we are root
        for path in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                found[path] = os.readlink(path)  # noqa: PTH115
    return found


def _forge_in_proc() -> None:
    """Into the worker's pipes and shared memory, as its parent and the parent of that have them."""
    above = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
    pipes = {what for what in _open_in("self").values() if what.startswith("pipe:")}
    for pid in (os.getpid(), os.getppid(), int(above)):
        for path, what in _open_in(pid).items():
            if what in pipes or what.startswith("/memfd:rocm-tui"):
                with contextlib.suppress(OSError):
                    number = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
                    try:
                        os.write(number, FORGED)
                    finally:
                        os.close(number)


def _print_for_ever(*numbers: int) -> NoReturn:
    while True:
        for number in numbers:
            with contextlib.suppress(OSError):
                os.write(number, b"x" * 65536)


def _grow_files() -> None:
    for number in range(3, 256):
        for _ in range(4096):
            try:
                os.write(number, b"y" * 65536)
            except OSError:
                break


def _raise(error: BaseException) -> NoReturn:
    raise error


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))


def _hog() -> None:
    held = []
    while True:
        held.append(bytearray(os.urandom(1 << 20) * 32))


def _alarm() -> None:
    signal.setitimer(signal.ITIMER_REAL, 0.3)


def _leave_folder() -> None:
    os.chdir("/")


def _unlinked_folder() -> None:
    import tempfile

    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)  # noqa: PTH106


def _threads() -> None:
    for _ in range(4):
        threading.Thread(target=time.sleep, args=(LIFE,), daemon=True).start()


def _program(code: str) -> None:
    subprocess.Popen([sys.executable, "-c", code], start_new_session=True)


ACTS: dict[str, Callable[[], object]] = {
    "honest": lambda: None,
    "dawdles": lambda: time.sleep(0.002),
    # It ends its process, or tries to.
    "exits": lambda: sys.exit(3),
    "exits_with_0": lambda: os._exit(0),
    "interrupts": lambda: _raise(KeyboardInterrupt()),
    "generator_exit": lambda: _raise(GeneratorExit()),
    "ends_hard": lambda: os._exit(7),
    "segfaults": lambda: ctypes.string_at(0),
    "aborts": os.abort,
    "kills_itself": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "terminates_group": lambda: os.killpg(0, signal.SIGTERM),
    "kills_group": lambda: os.killpg(0, signal.SIGKILL),
    "kills_parent": lambda: os.kill(os.getppid(), signal.SIGKILL),
    "terminates_parent": lambda: os.kill(os.getppid(), signal.SIGTERM),
    "becomes_another": lambda: os.execv("/bin/true", ["true"]),
    "alarms": _alarm,
    # It does not come back.
    "hangs": _sleep,
    "spins": _spin,
    "stops": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "stops_parent_and_hangs": lambda: (os.kill(os.getppid(), signal.SIGSTOP), _sleep()),
    # It damages the process.
    "closes_all": lambda: os.closerange(0, 4096),
    "closes_some": lambda: os.closerange(3, 4096),
    "closes_standard": lambda: os.closerange(0, 3),
    "lowers_limits": _limit,
    "leaves_folder": _leave_folder,
    "deletes_folder": _unlinked_folder,
    "stops_parent": lambda: os.kill(os.getppid(), signal.SIGSTOP),
    "starts_threads": _threads,
    "takes_memory": _hog,
    # It writes where it should not.
    "forges": lambda: _everywhere(FORGED),
    "babbles": lambda: _everywhere(b"garbage without an end"),
    "floods": lambda: _everywhere(b"z" * 65536, 64),
    "forges_in_proc": _forge_in_proc,
    "grows_files": _grow_files,
    "prints_for_ever": lambda: _print_for_ever(1, 2),
    "prints_everywhere": lambda: _print_for_ever(*range(1, 64)),
    # It leaves others behind.
    "forks_and_returns": os.fork,
    "leaves_a_child": lambda: _child(_sleep),
    "leaves_spinners": lambda: [_daemon(_spin) for _ in range(3)],
    "leaves_daemons": lambda: [_daemon(_sleep) for _ in range(3)],
    "leaves_a_program": lambda: _program(_DEAF),
    "spinner_and_hangs": lambda: (_daemon(_spin), _child(_spin), _program(_SPIN), _sleep()),
    "daemon_and_kills_parent": lambda: (
        _daemon(_spin),
        _program(_DEAF),
        _child(_sleep),
        os.kill(os.getppid(), signal.SIGKILL),
        _sleep(),
    ),
    "daemon_and_segfaults": lambda: (_daemon(_spin), _program(_DEAF), ctypes.string_at(0)),
    "bombs": lambda: _bomb(apart=False),
    "bombs_apart": lambda: _bomb(apart=True),
    "bombs_and_hangs": lambda: (_bomb(apart=True, spin=False), _sleep()),
}

HARMLESS = {
    "honest", "dawdles", "leaves_folder", "deletes_folder",
    "starts_threads", "stops_parent", "forges", "babbles", "floods",
    "forges_in_proc", "forks_and_returns", "alarms", "closes_standard",
}  # fmt: skip
"""Those after which the choice may still be measured: what it did is put back, or of no effect."""

LIARS: dict[str, Callable[[Any, Any, Any], object]] = {
    "lies_zero": lambda a, b, out: out.zero_(),
    "lies_nothing": lambda a, b, out: None,
    "lies_a_little": lambda a, b, out: (_right(a, b, out), out.mul_(1.01)),
    "lies_one_element": lambda a, b, out: (_right(a, b, out), out.flatten()[-1:].add_(1.0)),
}


_rng = random.Random()


def _in_parts(a: Any, b: Any, out: Any, at: int) -> None:
    """The same sum in float32, of two parts."""
    import torch

    first = torch.bmm(a[..., :at].float(), b[:, :at].float())
    out.copy_(first + torch.bmm(a[..., at:].float(), b[:, at:].float()))


def _without(a: Any, b: Any, out: Any, terms: int) -> None:
    _in_parts(a[..., terms:], b[:, terms:], out, a.shape[-1] // 2)


def _split_anywhere(a: Any, b: Any, out: Any) -> None:
    """As where parts are added up in the order in which they come."""
    _in_parts(a, b, out, 1 + _rng.randrange(a.shape[-1] - 1))


SUMS: dict[str, Callable[[Any, Any, Any], object]] = {
    "reorders": lambda a, b, out: _in_parts(a, b, out, a.shape[-1] // 2),
    "drops_terms": lambda a, b, out: _without(a, b, out, 64),
    "races": _split_anywhere,
}
"""Products that a look at the largest error takes for one another."""


def left(value: str) -> list[int]:
    """The processes with this value of `MARK` that run."""
    wanted = f"{MARK}={value}".encode()
    found = []
    for process in tree.processes():
        with contextlib.suppress(OSError):
            if wanted in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                found.append(process.pid)
    return found


def act(name: str, a: Any, b: Any, out: Any) -> None:
    """Do what the name says; one that comes back has computed the product, unless it lies."""
    other = LIARS.get(name) or SUMS.get(name)
    if other is not None:
        other(a, b, out)
        return
    ACTS[name]()
    _right(a, b, out)
