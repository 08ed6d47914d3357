"""Ray's driver, as a program beside ours: `python -m rocm_tui.fleet.ray.cluster PLAN`.

A process of its own, since Ray prints on stdout, takes SIGTERM for itself, and may end the process
with the cluster. Its input is a `Plan` and then `Say`s, until it ends; its output `Refused`, or
`Agents` whenever they change and what agents say: a line of JSON each. When its input ends all
actors go.

An actor stays on its node: one that dies is started again there, and ends with the node. A node
that joins gets its own. Actors belong to this process' job, so Ray ends them when it dies.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import backend
import rocm_tui
from backend.errors import brief
from backend.wire.codec import WireError, line_of_kind, loads, read
from rocm_tui.fleet.messages import Gone, ToDriver, message_of
from rocm_tui.fleet.ray.actor import AgentActor
from rocm_tui.fleet.ray.fleet import AUTO, LOCAL
from rocm_tui.fleet.serving import private_streams
from rocm_tui.harmless import plain

_LOOK = 3.0
"""Seconds between two looks for nodes that came."""
_HEAR = 10.0
"""Seconds that a question to an actor stays open."""
_AGAIN = 1.0
"""Seconds before an actor that Ray starts again is asked again."""
_WAIT = 1.0
_PATIENCE = 8.0
"""Seconds that agents have to end."""
_OBJECTS = 80 << 20
"""Bytes of the object store of a cluster of ours: no object goes there, Ray's least is 75 MiB."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`address` as of `ray.init`; `local` starts a cluster on this machine. `command` is that of an
    agent, see `AgentActor`. `cpus`: how many agents a node without a GPU gets; `beside`: agents of
    other fleets on this machine."""

    address: str
    command: tuple[str, ...]
    cpus: int = 0
    beside: int = 0


@dataclass(frozen=True, slots=True)
class Say:
    """A line for an agent."""

    agent: str
    line: str


@dataclass(frozen=True, slots=True)
class Refused:
    """Why there is no cluster, and what to do."""

    error: str


@dataclass(frozen=True, slots=True)
class Agents:
    """Those that are at work, or may yet say `Hello`."""

    names: tuple[str, ...]


@dataclass(slots=True)
class _Seat:
    """An actor. `agent` is the name that its agent said, `place` what stands for it until then;
    `asked` is the open question to it, else it is asked again `at`; `there` tells whether it
    answered since it was started."""

    place: str
    actor: Any
    agent: str = ""
    asked: Any = None
    at: float = 0.0
    there: bool = False


class Cluster:
    """Actors on all nodes. `say` is called in another thread than the rest."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._actor = ray.remote(concurrency_groups={"say": 1})(AgentActor)
        self._seats: list[_Seat] = []
        self._nodes: set[str] = set()
        self._hosts: Counter[str] = Counter()
        self._next = 0.0

    @property
    def agents(self) -> tuple[str, ...]:
        return tuple(seat.agent or seat.place for seat in self._seats)

    def look(self) -> None:
        """Start actors on nodes that are new, every few seconds."""
        now = time.monotonic()
        if now >= self._next:
            self._next = now + _LOOK
            nodes = [node for node in ray.nodes() if node["Alive"]]
            share = agents_by_host(nodes, self._plan)
            for node in nodes:
                if node["NodeID"] not in self._nodes:
                    self._nodes.add(node["NodeID"])
                    seats = self._seats_of(node, share[node["NodeManagerHostname"]])
                    self._seats = [*self._seats, *seats]

    def _seats_of(self, node: Mapping[str, Any], share: int) -> Iterator[_Seat]:
        host = plain(str(node["NodeManagerHostname"]), 60)
        self._hosts[host] += 1
        place = host if self._hosts[host] == 1 else f"{host}#{self._hosts[host]}"
        gpus = gpus_of(node)
        options = {
            "num_gpus": 1 if gpus else 0,
            "num_cpus": 0,
            "max_restarts": -1,
            "max_task_retries": 0,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        }
        for number in range(gpus or self._plan.cpus):
            cpu = None if gpus else number
            actor = self._actor.options(**options).remote(place, cpu, self._plan.command, share)
            yield _Seat(f"{place}:?{number}", actor)

    def say(self, agent: str, line: bytes) -> None:
        for seat in self._seats:
            if seat.agent == agent:
                _beside(seat.actor.say, line)

    def heard(self) -> Sequence[ToDriver]:
        """What the agents said; waits a little for the first of it."""
        for seat in self._seats:
            if seat.asked is None and seat.at <= time.monotonic():
                seat.asked = seat.actor.hear.remote(_HEAR)
        asked = {seat.asked: seat for seat in self._seats if seat.asked is not None}
        if not asked:
            time.sleep(_WAIT)
            return []
        ready, rest = ray.wait(list(asked), timeout=_WAIT)
        if ready and rest:
            ready += ray.wait(rest, num_returns=len(rest), timeout=0)[0]
        return [message for each in ready for message in self._answer(asked[each])]

    def _answer(self, seat: _Seat) -> Sequence[ToDriver]:
        asked, seat.asked = seat.asked, None
        name = seat.agent or seat.place
        try:
            lines = ray.get(asked)
        except ActorUnavailableError:
            was_there, seat.there, seat.at = seat.there, False, time.monotonic() + _AGAIN
            return [Gone(name, "its actor ended", True)] if was_there else []
        except RayError as error:
            self._leave(seat)
            return [Gone(name, why_gone(str(error)))]
        seat.there = True
        said = [message for line in lines if (message := self._message(seat, line)) is not None]
        if any(isinstance(message, Gone) and not message.returns for message in said):
            self._leave(seat)
            ray.kill(seat.actor, no_restart=True)
        return said

    def _leave(self, seat: _Seat) -> None:
        self._seats = [each for each in self._seats if each is not seat]

    def _message(self, seat: _Seat, line: bytes) -> ToDriver | None:
        try:
            message = message_of(line)
        except WireError:
            return None
        if not isinstance(message, ToDriver):
            return None
        seat.agent = message.agent
        return message

    def stop(self) -> None:
        """End all agents, then their actors."""
        with contextlib.suppress(RayError, ConnectionError):
            ending = [_beside(seat.actor.stop) for seat in self._seats]
            ray.wait(ending, num_returns=len(ending), timeout=_PATIENCE) if ending else None
        for seat in self._seats:
            with contextlib.suppress(RayError, ConnectionError):
                ray.kill(seat.actor, no_restart=True)


def gpus_of(node: Mapping[str, Any]) -> int:
    return int(node["Resources"].get("GPU", 0))


def agents_by_host(nodes: Iterable[Mapping[str, Any]], plan: Plan) -> Counter[str]:
    """How many agents share the memory of each host, of which Ray may have several nodes. Those
    that are at work keep the part that they were given, where another node of their host joins."""
    agents = Counter({socket.gethostname(): plan.beside})
    for node in nodes:
        agents[node["NodeManagerHostname"]] += gpus_of(node) or plan.cpus
    return agents


def _beside(method: Any, *words: object) -> Any:
    """Call a method of an actor beside the question that is open, in order with other such."""
    return method.options(concurrency_group="say").remote(*words)


def why_gone(error: str) -> str:
    """What Ray says of an actor that is dead, in a line."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    missing = next((line for line in lines if line.startswith("ModuleNotFoundError:")), None)
    if missing:
        return plain(f"{missing.partition(': ')[2]} on that node; install it there", 200)
    if "NodeAffinitySchedulingStrategy" in error:
        return "its node has gone"
    for line in reversed(lines):
        if line.startswith(_TELLING):
            return plain(line, 200)
    return plain(lines[-1] if lines else "its actor is dead", 200)


_TELLING = ("The actor is dead because", "The actor died because", "The actor's node")


def start_ray(plan: Plan) -> None:
    """Connect to the cluster, or start one. Raises what Ray does."""
    local = plan.address == LOCAL
    folders = [str(Path(str(package.__file__)).parent) for package in (rocm_tui, backend)]
    ours: dict[str, Any] = {"include_dashboard": False, "object_store_memory": _OBJECTS}
    there: dict[str, Any] = {"runtime_env": {"py_modules": folders}}
    ray.init(
        plan.address,
        log_to_driver=False,
        logging_level="ERROR",
        **(ours if local else there),
    )


def refusal(address: str, error: Exception) -> str:
    """Why there is no fleet, and what to do, in a line."""
    said = " ".join(str(error).split())
    if "ROCR_VISIBLE_DEVICES" in said:
        return "Ray knows HIP_VISIBLE_DEVICES alone: set that, and unset ROCR_VISIBLE_DEVICES"
    if "ersion mismatch" in said:
        return f"the cluster has another version: {brief(said.partition(': ')[2], 200)}"
    if "ray[client]" in said:
        return "Ray's client needs a package more, here and on the head: pip install 'ray[client]'"
    if isinstance(error, ConnectionError | TimeoutError):
        if address == AUTO:
            return "no Ray cluster runs on this host; `ray start --head` starts one"
        return (
            f"the Ray cluster at {address} does not answer ({brief(said, 80)}); where it asks for "
            "a token set RAY_AUTH_MODE=token, and have its ~/.ray/auth_token here"
        )
    return f"Ray: {brief(said, 200) or type(error).__name__}"


def main() -> int:
    heard, said = private_streams()
    lines = os.fdopen(heard, "rb")

    def tell(line: bytes) -> None:
        with contextlib.suppress(OSError):  # nobody listens: the input has ended too
            view = memoryview(line)
            while view:
                view = view[os.write(said, view) :]

    plan = read(Plan, loads(lines.readline()))
    try:
        start_ray(plan)
        cluster = Cluster(plan)
        cluster.look()
    except Exception as error:  # the outermost boundary: what Ray raises is of many types
        tell(line_of_kind(Refused(refusal(plan.address, error))))
        return 1
    over = threading.Event()
    threading.Thread(target=_listen, args=(lines, cluster, over), daemon=True).start()
    told: tuple[str, ...] | None = None
    messages: Sequence[ToDriver] = ()
    try:
        while not over.is_set():
            if told != cluster.agents:
                told = cluster.agents
                tell(line_of_kind(Agents(told)))
            for message in messages:
                tell(line_of_kind(message))
            cluster.look()
            messages = cluster.heard()
    finally:
        cluster.stop()
        ray.shutdown()
    return 0


def _listen(lines: Iterable[bytes], cluster: Cluster, over: threading.Event) -> None:
    """Pass on what the driver says, until it says no more."""
    try:
        for line in lines:
            said = read(Say, loads(line))
            cluster.say(said.agent, said.line.encode())
    finally:
        over.set()


if __name__ == "__main__":
    sys.exit(main())
