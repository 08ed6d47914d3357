"""Tuning on a Ray cluster: a task a problem. Scheduling, retries and lost nodes are Ray's part; the
results come back as typed data, and go into the cache here."""

from __future__ import annotations

import math
import os
import socket
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import backend
import rocm_tui
from backend.errors import brief
from backend.wire.codec import WireError, dumps, loads, read, to_json
from rocm_tui.environment import CPU
from rocm_tui.errors import UsageError
from rocm_tui.fleet.facts import OTHERS_SECONDS, FleetOptions, NoTuningDevice
from rocm_tui.fleet.node import NodeAnswer, NodeTask, remote_task
from rocm_tui.fleet.results import Results
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import JobError

LOCAL, AUTO, CLIENT = "local", "auto", "ray://"
RETRIES = 2
"""How often Ray runs a task again whose node, process or worker died."""
_CONNECT_SECONDS = 10.0
_LOOK = 0.5
_OBJECTS = 80 << 20
"""Bytes of the object store of a cluster of ours: no large object goes there; Ray's least is 75
MiB."""


def ray_address(word: str) -> str:
    """Return the address as `ray.init` takes it: `ray` starts a cluster on this machine, `ray:auto`
    is the one that this machine is a node of, `ray:HOST:PORT` another one, `ray://HOST:PORT` a
    client server. Raises UsageError."""
    if word == "ray":
        return LOCAL
    address = word if word.startswith(CLIENT) else word.removeprefix("ray:")
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    if address != AUTO and not (host and port.isascii() and port.isdecimal()):
        raise UsageError(
            f"{plain(word, 80)} is no cluster; write ray, ray:auto, ray:HOST:6379 or "
            "ray://HOST:10001"
        )
    return address


class Cluster:
    """A connection to the cluster at `address`. Use it in a `with` statement: its end ends all
    tasks. Raises NoTuningDevice where there is no cluster."""

    def __init__(self, address: str) -> None:
        if find_spec("ray") is None:
            raise NoTuningDevice("Ray is not installed here: pip install 'ray>=2.49,<3'")
        if address.startswith(CLIENT) and find_spec("grpc") is None:
            raise NoTuningDevice(
                "ray:// addresses need grpcio, here and on the head: pip install 'ray[client]'"
            )
        _check_answers(address)
        self._address = address
        self._names: dict[str, str] = {}
        self._hosts: Counter[str] = Counter()

    def __enter__(self) -> Cluster:
        self._environ = dict(os.environ)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray  # optional and heavy

        self._ray = ray
        folders = [str(Path(str(package.__file__)).parent) for package in (rocm_tui, backend)]
        here = {"include_dashboard": False, "object_store_memory": _OBJECTS}
        there = {"runtime_env": {"py_modules": folders}}
        try:
            ray.init(
                self._address,
                log_to_driver=False,
                logging_level="ERROR",
                **(here if self._address == LOCAL else there),
            )
        except Exception as error:  # what Ray raises is of many types
            self._restore_environment()
            raise NoTuningDevice(why_no_cluster(self._address, error)) from error
        self._task = ray.remote(max_calls=0, max_retries=RETRIES, retry_exceptions=[JobError])(
            remote_task()
        )
        return self

    def __exit__(self, *error: object) -> None:
        self._ray.shutdown()
        self._restore_environment()

    def _restore_environment(self) -> None:
        """Remove the variables that Ray has set: processes that are started later inherit them."""
        for name in os.environ.keys() - self._environ.keys():
            del os.environ[name]
        os.environ.update(self._environ)

    def tune(self, results: Results, wanted: FleetOptions) -> None:
        """Tune what is open until each problem has a result or a reason. Raises NoTuningDevice, and
        StoreErrors where results cannot be kept."""
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        gpus = any(map(_gpus, nodes))
        nodes = [node for node in nodes if (_gpus if gpus else _cpus)(node)]
        if not nodes:
            raise NoTuningDevice(
                "the nodes of this cluster have no GPU that Ray knows of, and no CPU"
            )
        needs: dict[str, Any] = {"num_gpus": 1, "num_cpus": 0}
        if not gpus:  # one task a node: several would disturb each other
            needs = {"num_cpus": min(map(_cpus, nodes))}
        unlike = self._examine(nodes, needs, results, wanted)
        if unlike:
            needs["label_selector"] = {"ray.io/node-id": f"!in({','.join(unlike)})"}
        results.skip_unfit(gpus, wanted)
        workers = max(_tasks_by_host(nodes).values()) if gpus else 1
        units = results.open()
        tasks = {
            self._start(needs, NodeTask(unit.job, unit.cached_ms, wanted.python, workers)): unit.id
            for _ in range(wanted.repeat)
            for unit in units
        }
        for task, answer in self._answers(tasks, wanted):
            if isinstance(answer, str):
                results.failed(tasks[task], "ray", answer)
            elif answer.result is not None:
                where = "cpu" if answer.gpu is None else answer.gpu
                device = f"{self._name(answer.node, answer.facts.host)}:{where}"
                results.came(tasks[task], device, answer.facts, answer.result)

    def _examine(
        self,
        nodes: Sequence[Mapping[str, Any]],
        needs: Mapping[str, Any],
        results: Results,
        wanted: FleetOptions,
    ) -> list[str]:
        """Look at a device of each node, and choose the class that counts; return the ids of the
        nodes that cannot tune or are of another class. A node whose devices are busy is none of
        these. Raises NoTuningDevice."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        looks = {}
        for node in nodes:
            here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            task = self._start(
                {**needs, "scheduling_strategy": here}, NodeTask(python=wanted.python)
            )
            looks[task] = (node["NodeID"], str(node["NodeManagerHostname"]))
        names = {self._name(*node): node[0] for node in looks.values()}
        broken: dict[str, str] = {}
        for task, answer in self._answers(looks, wanted, OTHERS_SECONDS):
            name = self._name(*looks[task])
            if isinstance(answer, str):
                broken[name] = answer
            elif "num_gpus" in needs and answer.facts.device == CPU:
                broken[name] = "torch sees no GPU there"
            else:
                results.devices[name] = answer.facts
        results.choose(wanted, broken)
        results.devices.clear()
        return [names[name] for name in results.refused]

    def _start(self, needs: Mapping[str, Any], task: NodeTask) -> Any:
        return self._task.options(**needs).remote(dumps(to_json(task)))

    def _answers(
        self, tasks: Collection[Any], wanted: FleetOptions, patience: float | None = None
    ) -> Iterator[tuple[Any, NodeAnswer | str]]:
        """The tasks with their answers, or why there is none, as they end; not later than
        `patience` seconds after the first. Raises NoTuningDevice."""
        open_, end, last_device = list(tasks), math.inf, time.monotonic()
        while open_ and time.monotonic() < end:
            ready, open_ = self._ray.wait(open_, timeout=_LOOK)
            for task in ready:
                if patience is not None:
                    end = min(end, time.monotonic() + patience)
                yield task, self._answer(task)
            if ready or self._has_devices():
                last_device = time.monotonic()
            elif time.monotonic() > last_device + OTHERS_SECONDS:
                raise NoTuningDevice("the cluster has lost all its devices")
            wanted.look()

    def _answer(self, task: Any) -> NodeAnswer | str:
        from ray.exceptions import RayError, RayTaskError

        try:
            return read(NodeAnswer, loads(self._ray.get(task)))
        except RayTaskError as error:  # what the task raised
            return plain(str(error.cause), 300)
        except RayError as error:
            return why_lost(str(error))
        except WireError as error:
            return f"its answer cannot be read: {plain(str(error), 200)}"

    def _has_devices(self) -> bool:
        resources = self._ray.cluster_resources()
        return bool(resources.get("GPU") or resources.get("CPU"))

    def _name(self, node: str, host: str) -> str:
        """The host of a node; a second node of one host is `host#2`."""
        if node not in self._names:
            self._hosts[host] += 1
            more = f"#{self._hosts[host]}" if self._hosts[host] > 1 else ""
            self._names[node] = plain(host.partition(".")[0], 60) + more
        return self._names[node]


def _gpus(node: Mapping[str, Any]) -> int:
    return int(node["Resources"].get("GPU", 0))


def _cpus(node: Mapping[str, Any]) -> int:
    return int(node["Resources"].get("CPU", 0))


def _tasks_by_host(nodes: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """How many tasks share the memory of each host, of which Ray may have several nodes."""
    tasks: Counter[str] = Counter()
    for node in nodes:
        tasks[node["NodeManagerHostname"]] += _gpus(node)
    return tasks


def why_lost(error: str) -> str:
    """Return Ray's reason for giving up a task, in a line."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    missing = next((line for line in lines if line.startswith("ModuleNotFoundError:")), None)
    if missing:
        return plain(f"{missing.partition(': ')[2]} on that node; install it there", 200)
    return plain(lines[0] if lines else "Ray gave it up", 200)


def _check_answers(address: str) -> None:
    """Ray itself would try for minutes. Raises NoTuningDevice."""
    host, _, port = address.removeprefix(CLIENT).rpartition(":")
    if not host:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise NoTuningDevice(
            f"nothing answers at {plain(address, 90)} ({brief(str(error), 80)}); "
            "`ray start --head` starts a head and says its address"
        ) from None


def why_no_cluster(address: str, error: Exception) -> str:
    """Why there is no cluster, and what to do, in a line."""
    text = " ".join(str(error).split())
    if "ROCR_VISIBLE_DEVICES" in text:
        return "Ray knows HIP_VISIBLE_DEVICES alone: set that, and unset ROCR_VISIBLE_DEVICES"
    if "ersion mismatch" in text:
        return f"the cluster has another version: {brief(text.partition(': ')[2], 200)}"
    if "ray[client]" in text:
        return "Ray's client needs another package, here and on the head: pip install 'ray[client]'"
    if isinstance(error, ConnectionError | TimeoutError):
        if address == AUTO:
            return "no Ray cluster runs on this host; `ray start --head` starts one"
        return (
            f"the Ray cluster at {address} does not answer ({brief(text, 80)}); if it requires a "
            "token, set RAY_AUTH_MODE=token and copy its ~/.ray/auth_token to this host"
        )
    return f"Ray: {brief(text, 200) or type(error).__name__}"
