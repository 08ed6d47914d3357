"""The driver's side of a fleet on Ray: words to a place, and the `Fleet` that `cluster` serves."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from urllib.parse import parse_qs

from backend.errors import brief
from backend.processes import tree
from backend.wire.codec import WireError, dumps, loads
from rocm_tui.errors import UsageError
from rocm_tui.fleet.local import agent_command
from rocm_tui.fleet.messages import Gone, ToAgent, ToDriver, line_of, message_of
from rocm_tui.fleet.protocol import NoFleet, Site
from rocm_tui.fleet.ray.actor import DEVICE, NAME, PYTHON, SHARE
from rocm_tui.harmless import plain

LOCAL, AUTO, CLIENT = "local", "auto", "ray://"
CLIENT_MISSING = (
    "ray:// addresses need Ray's client (grpcio), here and on the head: pip install 'ray[client]'"
)
OPENING = 120.0
"""Seconds that a cluster has to answer, or one of ours to start."""
_ANSWER = 10.0
_END = 20.0
"""Seconds that a cluster's agents have to end, then it is left to Ray."""


@dataclass(frozen=True, slots=True)
class RayPlace:
    """`address` as of `ray.init`: `local` starts a cluster on this machine, `auto` is the one that
    this machine is a node of, `HOST:PORT` too, `ray://HOST:PORT` a client server. `cpus`: agents of
    each node without a GPU."""

    address: str
    cpus: int


def open_ray(words: str, site: Site) -> RayFleet:
    """`ray`, `ray:auto` or `ray:HOST:6379`, with `?cpus=N` each. Raises UsageError and NoFleet."""
    return _open(ray_place(words), site)


def open_ray_client(words: str, site: Site) -> RayFleet:
    """`ray://HOST:10001`, with `?cpus=N`. Raises UsageError and NoFleet."""
    return _open(ray_place(words, CLIENT), site)


def _open(place: RayPlace, site: Site) -> RayFleet:
    if find_spec("ray") is None:
        raise NoFleet("Ray is not installed here: pip install 'rocm-tui[fleet]'")
    if place.address.startswith(CLIENT) and find_spec("grpc") is None:
        raise NoFleet(CLIENT_MISSING)
    _check_answers(place.address)
    # Another host has another Python, and a cache dir of its own.
    there = site if place.address == LOCAL else Site(None, site.run, site.python)
    return RayFleet(place, node_command(there), site.here)


def node_command(site: Site) -> tuple[str, ...]:
    """That of an agent, see `AgentActor`."""
    return agent_command([PYTHON, "-m", "rocm_tui"], NAME, DEVICE, site, SHARE)


def ray_place(words: str, scheme: str = "") -> RayPlace:
    """`scheme` is that of the address. Raises UsageError."""
    where, _, asked = words.partition("?")
    here = not scheme and where in ("", AUTO)
    try:
        query = parse_qs(asked, strict_parsing=bool(asked))
        cpus = int(query.pop("cpus", ["0" if where else "1"])[-1])
        if query or cpus < 0 or not (here or _is_port(where)):
            raise ValueError
    except ValueError:
        raise UsageError(
            f"{plain(scheme or 'ray:', 10)}{plain(words, 80)} is no cluster; give ray, ray:auto, "
            "ray:HOST:6379 or ray://HOST:10001, with ?cpus=N for agents of nodes without a GPU"
        ) from None
    return RayPlace(scheme + where if where else LOCAL, cpus)


def _is_port(where: str) -> bool:
    host, _, port = where.rpartition(":")
    return bool(host) and port.isascii() and port.isdecimal()


def _check_answers(address: str) -> None:
    """Ray itself would try for minutes. Raises NoFleet."""
    where = address.removeprefix(CLIENT)
    if _is_port(where):
        host, _, port = where.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER).close()
        except (OSError, OverflowError) as error:
            raise NoFleet(
                f"nothing answers at {plain(where, 90)} ({brief(str(error), 80)}); "
                "`ray start --head` starts a head and says its address"
            ) from None


class RayFleet:
    """See `Fleet`. Ray is in another process, which ends with this one, however that ends."""

    def __init__(self, place: RayPlace, command: Sequence[str], beside: int = 0) -> None:
        """`beside` are agents of other fleets on this machine, with which those of its node share
        the memory. Raises NoFleet."""
        self._agents: tuple[str, ...] = ()
        self._heard: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lines: deque[str] = deque(maxlen=20)
        self._over = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rocm_tui.fleet.ray.cluster"],
            env={"RAY_USAGE_STATS_ENABLED": "0", "RAY_COLOR_PREFIX": "0", **os.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C is ours, and we end it
        )
        for read in (self._read, self._read_trouble):
            threading.Thread(target=read, daemon=True).start()
        plan = {"address": place.address, "command": list(command), "cpus": place.cpus}
        plan["beside"] = beside
        try:
            self._write(dumps(plan))
            self._await_agents(place)
        except BaseException:
            self._end(0.0)
            raise

    @property
    def agents(self) -> Collection[str]:
        return self._agents

    def offer(self, agent: str, message: ToAgent) -> None:
        self._write(dumps({"agent": agent, "line": line_of(message).decode()}))

    def results(self, timeout: float) -> Sequence[ToDriver]:
        end = time.monotonic() + timeout
        said: list[ToDriver] = []
        while True:
            left = 0.0 if said else max(0.0, end - time.monotonic())
            try:
                line = self._heard.get(timeout=left) if left else self._heard.get_nowait()
            except queue.Empty:
                return said
            said.extend(self._messages(line))

    def stop(self) -> None:
        if not self._over:
            self._end(_END)

    def _end(self, patience: float) -> None:
        self._over = True
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            tree.end(self._process.pid, bury=False)
            self._process.wait()

    def _await_agents(self, place: RayPlace) -> None:
        try:
            line = self._heard.get(timeout=OPENING)
        except queue.Empty:
            raise NoFleet(f"Ray did not answer for {OPENING:.0f} s") from None
        if line is None:
            raise NoFleet(f"Ray ended{self._last()}")
        error = loads(line).get("error")
        if error:
            raise NoFleet(plain(str(error), 400))
        self._messages(line)
        if not self._agents:
            raise NoFleet(
                "the nodes of this cluster have no GPU that Ray knows of; "
                f"?cpus=N gives each N agents: ray:{place.address}?cpus=1"
            )

    def _messages(self, line: bytes | None) -> Sequence[ToDriver]:
        if line is None:  # it has ended, and with it the cluster, or all that we had there
            gone, self._agents = self._agents, ()
            return [Gone(name, f"the connection to Ray ended{self._last()}") for name in gone]
        words = loads(line)
        if words.get("is") == "agents":
            self._agents = tuple(map(str, words["names"]))
            return []
        try:
            message = message_of(line)
        except WireError:
            return []
        return [message] if isinstance(message, ToDriver) else []

    def _last(self) -> str:
        return f": {plain(self._lines[-1], 200)}" if self._lines else ""

    def _write(self, line: str) -> None:
        """Where nobody reads, the end of what it says tells."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                self._process.stdin.write(line.encode() + b"\n")
                self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._heard.put(line)
        self._heard.put(None)

    def _read_trouble(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                if line.strip():
                    self._lines.append(line.decode(errors="replace").strip())
