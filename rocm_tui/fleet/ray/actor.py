"""What Ray runs for each device, on its node: an actor that keeps `rocm-tui agent` as its child.

The agent is a process of its own, so that a crash of it or of its worker does not end
the actor. When the actor ends, the agent's input ends, and so does the agent with all that it
started.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from backend.wire.codec import WireError
from rocm_tui.environment import CPU, VISIBLE
from rocm_tui.fleet.messages import Cancel, Offer, Stop, line_of, message_of
from rocm_tui.fleet.pipe import Pipes, Start

PYTHON, NAME, DEVICE, SHARE = "{python}", "{name}", "{device}", "{share}"
_SLICE = 0.05
"""Seconds after which a line for the agent is sent at the latest."""
_PACKAGES = ("rocm_tui", "backend", "psutil", "filelock")
"""What an agent imports. The first two may lie where Ray put them, and Ray has a psutil."""


class AgentActor:
    """One agent. `say` and `stop` are called in another thread than `hear`."""

    def __init__(self, place: str, cpu: int | None, command: Sequence[str], share: int = 1) -> None:
        """An agent at `place`, which names the node, for the GPU that Ray gave; else number `cpu`
        there, for the CPU. In `command` the node's Python, the agent's name and device, and how
        many agents `share` the memory of that host are filled in."""
        gpu = given_gpu() if cpu is None else None
        self.name = f"{place}:{gpu}" if cpu is None else f"{place}:cpu{cpu}"
        words = {PYTHON: sys.executable, NAME: self.name, DEVICE: CPU if gpu is None else "0"}
        words[SHARE] = str(share)
        start = tuple(words.get(word, word) for word in command)
        env = agent_env(first_environment(), gpu)
        self._pipes = Pipes({self.name: Start(start, env)})
        self._said: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._heard: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._over = threading.Event()
        self._carrier = threading.Thread(target=self._carry, daemon=True)
        self._carrier.start()

    def say(self, line: bytes) -> None:
        """A line for the agent; one that is not there does not get it, which its `Gone` tells."""
        self._said.put(line)

    def hear(self, seconds: float) -> list[bytes]:
        """What the agent said, waiting up to `seconds` for the first of it."""
        lines: list[bytes] = []
        with contextlib.suppress(queue.Empty):
            lines.append(self._heard.get(timeout=seconds))
            while True:
                lines.append(self._heard.get_nowait())
        return lines

    def stop(self) -> None:
        """End the agent and all that it started."""
        self._over.set()
        self._carrier.join()

    def _carry(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(queue.Empty):
                while True:
                    self._offer(self._said.get_nowait())
            for message in self._pipes.results(_SLICE):
                self._heard.put(line_of(message))
        self._pipes.stop()

    def _offer(self, line: bytes) -> None:
        with contextlib.suppress(WireError):
            message = message_of(line)
            if isinstance(message, Offer | Cancel | Stop):
                self._pipes.offer(self.name, message)


def given_gpu() -> str:
    import ray  # optional, and there is one where this runs

    gpus: Mapping[str, Sequence[str]] = ray.get_runtime_context().get_accelerator_ids()
    return gpus["GPU"][0]


def first_environment() -> dict[str, str]:
    """The environment that this process began with, before Ray changed it."""
    text = os.fsdecode(Path("/proc/self/environ").read_bytes())
    pairs = (part.partition("=") for part in text.split("\0") if part)
    return {name: value for name, _, value in pairs}


def agent_env(env: Mapping[str, str], gpu: str | None) -> dict[str, str]:
    """The environment of an agent: `env` with the one GPU that is its own, and where the packages
    lie.

    Nothing else of what Ray sets: not `OMP_NUM_THREADS`, with which the choices of a CPU have other
    hashes than in a program beside Ray, and no empty list of GPUs (Ray before 2.50), with which
    PyTorch's cache file has another name. Of the two variables of GPUs Ray sets one, or none
    (RAY_EXPERIMENTAL_NOSET_...); both are set, and alike.
    """
    places = [place for name in _PACKAGES if (place := _place(name)) is not None]
    path = [*dict.fromkeys(places), *filter(None, [env.get("PYTHONPATH")])]
    shown = {} if gpu is None else dict.fromkeys(VISIBLE, gpu)
    return {**env, **shown, **({"PYTHONPATH": os.pathsep.join(path)} if path else {})}


def _place(package: str) -> str | None:
    """The folder of `package`, where a new Python would not find it by itself."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parents[1]
    return None if folder.name in ("site-packages", "dist-packages") else str(folder)
