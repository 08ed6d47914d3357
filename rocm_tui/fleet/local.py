"""The devices of this machine, an agent each."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from backend.measure.devices import gpus
from rocm_tui.environment import CPU, find_python, visible_devices
from rocm_tui.fleet.facts import host_name
from rocm_tui.fleet.pipe import Pipes, Start
from rocm_tui.fleet.protocol import Fleet, NoFleet, NotAFleet, Site

MOST = 256


def open_local(words: str, site: Site) -> Fleet:
    """`local`: all GPUs that are visible, else the CPU; `local:4`: four of them, or four agents
    that share the CPU; `local:cpu`, `local:cpu:4`: the CPU in any case. Raises NoFleet."""
    devices = local_devices(words, _visible(os.environ))
    site = replace(site, python=find_python(site.python, dict(os.environ)))
    program, host = [sys.executable, "-m", "rocm_tui"], host_name()
    names = {f"{host}:{name}": device for name, device in devices.items()}
    many = max(site.here, len(devices))
    return Pipes({n: Start(agent_command(program, n, d, site, many)) for n, d in names.items()})


def count_local(words: str) -> int:
    """How many agents `open_local` starts. Raises NoFleet."""
    return len(local_devices(words, _visible(os.environ)))


def local_devices(words: str, gpus: int) -> dict[str, str]:
    """The devices by the agents' names, of so many GPUs. Raises NoFleet."""
    parts = [part for part in words.split(":") if part]
    cpu = parts[:1] == [CPU] or not gpus
    count = parts[1:] if parts[:1] == [CPU] else parts
    if len(count) > 1 or not all(word.isascii() and word.isdecimal() for word in count):
        raise NotAFleet(
            f"local:{words} is no fleet; write local, local:4, local:cpu or local:cpu:4"
        )
    many = int(count[0]) if count else (1 if cpu else gpus)
    if not many:
        raise NotAFleet(f"local:{words} is a fleet without a device")
    if many > MOST or (not cpu and many > gpus):
        there = f"{gpus} visible here" if not cpu else f"{MOST} at most"
        raise NoFleet(f"local:{words} asks for {many} devices; there are {there}")
    return {f"cpu{n}" if cpu else str(n): CPU if cpu else str(n) for n in range(many)}


def agent_command(
    program: Sequence[str], name: str, device: str, site: Site, share: int | str = 1
) -> tuple[str, ...]:
    """The command line of an agent, behind that of `program`. Its host finds Python and cache dir
    where none is given. So many agents `share` the memory of its host; a text is filled in there.
    """
    words = [*program, "agent", "--device", device, "--name", name, "--run", site.run]
    if share != 1:
        words += ["--share", str(share)]
    if site.python is not None:
        words += ["--python", site.python]
    if site.root is not None:
        words += ["--cache-dir", str(site.root)]
    return tuple(words)


def _visible(env: Mapping[str, str]) -> int:
    shown = visible_devices(env)
    return len(gpus()) if shown is None else len(shown)
