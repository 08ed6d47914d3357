"""Where the ranks of a job meet: a folder where they are on one host or one was named, else the
store that torchrun's agent, or rank 0, serves for their job.
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent import futures
from datetime import timedelta
from typing import Any, TypeVar

from backend.disk.layout import Layout
from backend.errors import brief
from backend.inductor.torch import state
from backend.ranks import job
from backend.ranks.job import Board, FolderBoard, Meeting, NoBoard

CALL_SECONDS = 10.0
"""A server that does not answer for so long is given up."""

_OURS = "rocm_tui/ranks"
_MARK = 16

T = TypeVar("T")


class StoreBoard:
    """Notes as values of a TCPStore, below `job` of our own prefix. A note that is taken down is
    empty. Each is written after a mark of its writer, who recognizes its own by that.

    Nothing but the store is needed: no collective, no process group. The connection is our own,
    since one is held as long as a call lasts, and the program has its own calls to make. A call to
    a server that is silent never returns, whatever the time limit of the store (`check` and
    `compare_set` have none): so a thread makes the calls, and is left behind with the one that
    lasts too long.
    """

    def __init__(self, host: str, port: int, job: str, seconds: float = CALL_SECONDS) -> None:
        """Raises NoBoard where no store answers."""
        self._where = f"the store at {host}:{port}"
        self._prefix = f"{_OURS}/{job}/"
        self._seconds = min(seconds, CALL_SECONDS)
        self._lost = ""
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], futures.Future[Any]]]
        self._calls = queue.SimpleQueue()
        threading.Thread(target=_serve, args=(self._calls,), name=_OURS, daemon=True).start()
        self._store = self._call(lambda: _connected(host, port, self._seconds))

    def __str__(self) -> str:
        return self._where

    def read(self, name: str) -> bytes | None:
        return self._swap(name, b"")[_MARK:] or None

    def put(self, name: str, note: bytes) -> bool:
        marked = secrets.token_hex(_MARK // 2).encode() + note
        return self._swap(name, marked) == marked

    def take_down(self, name: str) -> None:
        self._call(lambda: self._store.set(self._prefix + name, ""))

    def beat(self, name: str) -> None:
        with contextlib.suppress(NoBoard):  # a sign that is missing is seen by those who wait
            self._count(name, 1)

    def last_beat(self, name: str) -> object:
        return self._count(name, 0)

    def _swap(self, name: str, value: bytes) -> bytes:
        """Write `value` where nothing is, at once with reading what is there then."""
        key: str = self._prefix + name
        swap: Callable[..., bytes] = self._store.compare_set  # takes bytes too
        return self._call(lambda: swap(key, b"", value))

    def _count(self, name: str, more: int) -> int:
        return self._call(lambda: int(self._store.add(f"{self._prefix}{name}.beats", more)))

    def _call(self, call: Callable[[], T]) -> T:
        """Raises NoBoard; once it has, it always does."""
        if self._lost:
            raise NoBoard(self._lost)
        answer: futures.Future[T] = futures.Future()
        self._calls.put((call, answer))
        try:
            return answer.result(self._seconds)
        except futures.TimeoutError as error:
            self._lost = f"{self._where} does not answer for {self._seconds:g} s"
            raise NoBoard(self._lost) from error
        except (RuntimeError, OSError, ValueError, OverflowError) as error:
            self._lost = f"{self._where} cannot be reached: {_reason(error)}"
            raise NoBoard(self._lost) from error


def _serve(calls: queue.SimpleQueue[tuple[Callable[[], Any], futures.Future[Any]]]) -> None:
    while True:
        call, answer = calls.get()
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)


def _connected(host: str, port: int, seconds: float) -> Any:
    from torch.distributed import TCPStore  # a torch may be built without it

    # Where nothing listens, TCPStore would try until its time is up and print its C++ stack.
    socket.create_connection((host, port), seconds).close()
    limit = timedelta(seconds=seconds)
    return TCPStore(host, port, is_master=False, timeout=limit, wait_for_workers=False)


def _reason(error: Exception) -> str:
    told = getattr(error, "strerror", None) or str(error).partition("\n")[0]
    return brief(told or type(error).__name__, 100)


_AGENT = "TORCHELASTIC_USE_AGENT_STORE"


class NotYet(NoBoard):
    """Ranks cannot meet before there is a process group."""


def board(size: int, layout: Layout, env: Mapping[str, str] = os.environ) -> Board:
    """Where the ranks of a job of this size meet. Raises NoBoard, NotYet."""
    meeting = job.meeting(size, layout, env)
    if isinstance(meeting, Meeting):
        return FolderBoard(meeting)
    if meeting:
        raise NoBoard(meeting)
    server = agent_store(env) or state.default_store()
    if server is None:
        why = "its ranks are on several hosts and have no store to meet in"
        raise NotYet(f"{why}; call init_process_group before, or name a folder with --agree-dir")
    return StoreBoard(*server, env.get("TORCHELASTIC_RUN_ID", ""), job.limit(env))


def agent_store(env: Mapping[str, str]) -> tuple[str, int] | None:
    """Host and port of the store that torchrun's agent serves before any rank starts; a rank that
    is started again finds it as it was."""
    host, port = env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")
    return (host, int(port)) if env.get(_AGENT) == "True" and host and port.isdecimal() else None
