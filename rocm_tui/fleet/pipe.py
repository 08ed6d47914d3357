"""Agents behind pipes: each is a process of ours, a line a message on its stdin and stdout."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from backend.processes import tree
from backend.wire.codec import WireError
from rocm_tui.fleet.messages import Gone, Hello, Stop, ToAgent, ToDriver, line_of, message_of
from rocm_tui.harmless import plain

PATIENCE = 5.0
"""Seconds that an agent has to end by itself."""
AGAIN = (1.0, 5.0, 20.0)
"""Seconds before an agent that was lost is started again, each time; then it is given up. One that
says `Hello` has all of them again."""
LINE = 16 << 20
"""Bytes of the longest line that is a message."""
UNREAD = 64 << 20
"""Bytes that an agent may leave unread: an offer is a line, and it has two."""
_CHUNK = 1 << 16
_LAST_LINES = 8


@dataclass(frozen=True, slots=True)
class Start:
    """How an agent is started. Without `env` it has ours."""

    command: tuple[str, ...]
    env: Mapping[str, str] | None = None


@dataclass(slots=True, eq=False)
class _Agent:
    name: str
    start: Start
    process: subprocess.Popen[bytes] | None = None
    unread: bytearray = field(default_factory=bytearray)
    unsent: bytearray = field(default_factory=bytearray)
    said: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))
    tries: int = 0
    due: float | None = None
    """When it is started again."""
    last_word: bool = False
    """Whether it said itself that it is gone."""


class Pipes:
    """A `Fleet` of such agents, by name. `again` are the pauses before one is started anew."""

    def __init__(self, starts: Mapping[str, Start], again: Sequence[float] = AGAIN) -> None:
        self._again = tuple(again)
        self._agents = {name: _Agent(name, start) for name, start in starts.items()}
        self._ready = selectors.DefaultSelector()
        self._heard: list[ToDriver] = []
        self._over = False
        for agent in self._agents.values():
            self._begin(agent)

    @property
    def agents(self) -> Collection[str]:
        return [
            agent.name
            for agent in self._agents.values()
            if agent.process is not None or agent.due is not None
        ]

    def offer(self, agent: str, message: ToAgent) -> None:
        there = self._agents.get(agent)
        if there is not None and there.process is not None:
            there.unsent += line_of(message)
            self._write(there)
            if len(there.unsent) > UNREAD:
                self._lost(there, "it does not read what it is told")

    def results(self, timeout: float) -> Sequence[ToDriver]:
        end = time.monotonic() + timeout
        while not self._heard and not self._over:
            now = time.monotonic()
            for agent in self._agents.values():
                if agent.due is not None and agent.due <= now:
                    self._begin(agent)
            due = min((a.due for a in self._agents.values() if a.due is not None), default=end)
            self._look(max(0.0, min(end, due) - now))
            if time.monotonic() >= end:
                break
        self._look(0.0)
        heard, self._heard = self._heard, []
        return heard

    def stop(self) -> None:
        if self._over:
            return
        self._over = True
        left = [agent for agent in self._agents.values() if agent.process is not None]
        for agent in left:
            agent.unsent += line_of(Stop())
            self._write(agent)
            self._close_stdin(agent)
        end = time.monotonic() + PATIENCE
        for agent in left:
            process = agent.process
            if process is not None:
                self._drain(agent, end)
                self._bury(agent, process, max(0.0, end - time.monotonic()))
        self._ready.close()

    # One agent's life.

    def _begin(self, agent: _Agent) -> None:
        agent.due = None
        agent.tries += 1
        agent.unread.clear()
        agent.unsent.clear()
        agent.said.clear()
        try:
            process = subprocess.Popen(
                agent.start.command,
                env=None if agent.start.env is None else dict(agent.start.env),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # a Ctrl-C is ours, and we end it
            )
        except OSError as error:
            self._gone(agent, f"cannot start {agent.start.command[0]}: {error.strerror}")
            return
        agent.process = process
        assert process.stdin is not None and process.stdout is not None
        assert process.stderr is not None
        for stream in (process.stdin, process.stdout, process.stderr):
            os.set_blocking(stream.fileno(), False)
        self._ready.register(process.stdout, selectors.EVENT_READ, (agent, "stdout"))
        self._ready.register(process.stderr, selectors.EVENT_READ, (agent, "stderr"))

    def _look(self, timeout: float) -> None:
        for key, _ in self._ready.select(timeout):
            agent, what = key.data
            if agent.process is None:
                continue
            if what == "stdin":
                self._write(agent)
            elif what == "stderr":
                self._hear_trouble(agent)
            else:
                self._read(agent)

    def _read(self, agent: _Agent) -> None:
        assert agent.process is not None and agent.process.stdout is not None
        try:
            data = os.read(agent.process.stdout.fileno(), _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lost(agent, "")
            return
        agent.unread += data
        *lines, rest = agent.unread.split(b"\n")
        agent.unread = rest
        for line in lines:
            self._hear(agent, bytes(line))
        if len(rest) > LINE:
            self._lost(agent, "it says what is no message")

    def _hear(self, agent: _Agent, line: bytes) -> None:
        """A message of the agent, under its own name; other lines are left out, as a library's."""
        try:
            message = message_of(line)
        except WireError:
            if line.strip():
                agent.said.append(plain(line.decode(errors="replace"), 200))
            return
        if not isinstance(message, ToDriver):
            return
        if isinstance(message, Hello):
            agent.tries = 0
        if isinstance(message, Gone):
            agent.last_word = True
            agent.said.append(plain(message.reason, 300))
        else:
            self._heard.append(replace(message, agent=agent.name))

    def _hear_trouble(self, agent: _Agent) -> None:
        assert agent.process is not None and agent.process.stderr is not None
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(agent.process.stderr.fileno(), _CHUNK)
        if not data:
            with contextlib.suppress(KeyError, ValueError):
                self._ready.unregister(agent.process.stderr)
        lines = data.decode(errors="replace").splitlines()
        agent.said.extend(plain(line.strip(), 200) for line in lines if line.strip())

    def _write(self, agent: _Agent) -> None:
        process = agent.process
        if process is None or process.stdin is None or process.stdin.closed:
            return
        try:
            while agent.unsent:
                del agent.unsent[: os.write(process.stdin.fileno(), agent.unsent)]
        except BlockingIOError:
            pass
        except OSError:
            agent.unsent.clear()  # it is gone, which its stdout tells
        registered = process.stdin.fileno() in self._ready.get_map()
        if agent.unsent and not registered:
            self._ready.register(process.stdin, selectors.EVENT_WRITE, (agent, "stdin"))
        elif registered and not agent.unsent:
            self._ready.unregister(process.stdin)

    def _lost(self, agent: _Agent, why: str) -> None:
        process = agent.process
        assert process is not None
        self._hear_trouble(agent)
        code = self._bury(agent, process, 1.0 if not why else 0.0)
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        last = agent.said[-1] if agent.said else ""
        ended = f"it ended ({how})" + (f": {last}" if last else "")
        self._gone(agent, why or (last if agent.last_word else ended))

    def _gone(self, agent: _Agent, reason: str) -> None:
        returns = not agent.last_word and agent.tries <= len(self._again) and not self._over
        if returns:
            agent.due = time.monotonic() + self._again[max(0, agent.tries - 1)]
        self._heard.append(Gone(agent.name, reason, returns))

    def _close_stdin(self, agent: _Agent) -> None:
        process = agent.process
        if process is not None and process.stdin is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._ready.unregister(process.stdin)
            with contextlib.suppress(OSError):
                process.stdin.close()

    def _drain(self, agent: _Agent, end: float) -> None:
        """Read what it still says, so that it can end, until it has or the time is over."""
        while agent.process is not None and agent.process.poll() is None:
            left = end - time.monotonic()
            if left <= 0:
                return
            for key, _ in self._ready.select(min(left, 0.05)):
                other, what = key.data
                with contextlib.suppress(OSError):
                    if what != "stdin" and not os.read(key.fd, _CHUNK):
                        self._ready.unregister(key.fileobj)
                if other is agent and what == "stdout" and agent.process.poll() is not None:
                    return

    def _bury(self, agent: _Agent, process: subprocess.Popen[bytes], patience: float) -> int:
        """End it with all below it, forget its pipes; its exit code."""
        self._close_stdin(agent)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                with contextlib.suppress(KeyError, ValueError):
                    self._ready.unregister(stream)
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            tree.end(process.pid, bury=False)
        code = process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        agent.process = None
        return code
