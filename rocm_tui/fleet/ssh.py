"""The devices of other hosts, an agent each, behind the person's own ssh: `ssh://gpu1`,
`ssh://me@gpu1:2222/cache/dir?devices=0-3&command=/opt/venv/bin/rocm-tui`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from rocm_tui.environment import CPU
from rocm_tui.fleet.local import MOST, agent_command
from rocm_tui.fleet.pipe import Pipes, Start
from rocm_tui.fleet.protocol import Fleet, NoFleet, NotAFleet, Site
from rocm_tui.ssh.address import SCHEME, Address, address_of
from rocm_tui.ssh.child import Child, TooLong, pauses
from rocm_tui.ssh.command import ssh_line
from rocm_tui.ssh.words import why_ended

OPTIONS = frozenset(("command", "devices", "python"))
AGAIN = tuple(islice(pauses(), 65))
"""Seconds before each further try of a host that is lost; it is given up after half an hour."""
KEEP = 10.0
"""Seconds between two signs of life to an agent."""
SILENCE = 120.0
"""Seconds without one after which an agent ends, with its workers: its network was cut."""
_PATIENCE = 30.0
_LONGEST = 1 << 16
_DEVICE = re.compile(rb"device (\d{1,3}|cpu)")
_RANGE = re.compile(r"(\d{1,3})(?:-(\d{1,3}))?")


def open_ssh(words: str, site: Site) -> Fleet:
    """All devices of the host, or those named by `devices=0,2-3` or `devices=cpu`. The path is the
    cache dir there, `python` the one there that has torch; what is not given the host finds itself.

    Raises NoFleet where it cannot be asked for its devices, and UsageError.
    """
    address = address_of(f"{SCHEME}{words}", OPTIONS)
    asked = address.options.get("devices")
    devices = _devices_there(address) if asked is None else devices_of(asked)
    root = Path(address.path) if address.path else None
    there = Site(root, site.run, address.options.get("python"))
    place = address.place.removeprefix(SCHEME)
    starts, quiet = {}, ("--silence", f"{SILENCE:g}")
    for device in devices:
        name = f"{place}:{device}"
        agent = [*agent_command((), name, device, there, len(devices)), *quiet]
        starts[name] = Start(tuple(ssh_line(address, agent)))
    return Pipes(starts, AGAIN, keep=KEEP)


def devices_of(text: str) -> list[str]:
    """`0,2-3` is 0, 2 and 3. Raises NotAFleet."""
    devices: list[str] = []
    for part in text.split(","):
        form = _RANGE.fullmatch(part)
        if form:
            first, last = int(form[1]), int(form[2] or form[1])
            devices += map(str, range(first, last + 1))
        elif part == CPU:
            devices.append(CPU)
        else:
            devices.clear()
            break
    if not 0 < len(devices) <= MOST or len(set(devices)) < len(devices):
        raise NotAFleet(
            f"devices={text!r} is no list of devices; write devices=0,2-3 or devices=cpu"
        )
    return devices


def _devices_there(address: Address) -> Sequence[str]:
    """What the host says that it has. Raises NoFleet."""
    try:
        child = Child(ssh_line(address, ["agent", "--list"]), _LONGEST)
    except OSError as error:
        raise NoFleet(f"ssh cannot be started: {error.strerror}") from None
    end, heard, found = time.monotonic() + _PATIENCE, 0, list[str]()
    with suppress(TooLong):
        while child.open and time.monotonic() < end and heard < _LONGEST:
            for line in child.lines(0.5):
                heard += len(line)
                form = _DEVICE.fullmatch(line)  # another line is a login's
                found += [form[1].decode()] if form else []
    ended = not child.open
    code = child.end()
    if ended and code:
        raise NoFleet(f"{address.place}: {why_ended(address, code, child.said, 'agent')}")
    if not found or len(found) > MOST:
        raise NoFleet(f"{address.place}: what answers there is not rocm-tui")
    return list(dict.fromkeys(found))
