"""A fleet by the words that a person typed (`local`, `ray:auto`); several are one."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from importlib import import_module

from rocm_tui.fleet.local import count_local
from rocm_tui.fleet.messages import ToAgent, ToDriver
from rocm_tui.fleet.protocol import Fleet, NoFleet, NotAFleet, Site
from rocm_tui.meant import did_you_mean

LOCAL = "local"
SCHEMES: Mapping[str, str] = {
    LOCAL: "rocm_tui.fleet.local:open_local",
    "ray": "rocm_tui.fleet.ray.fleet:open_ray",
    "ray://": "rocm_tui.fleet.ray.fleet:open_ray_client",
}
"""What opens the fleets of a scheme: a function of the words behind its colon, and the site. It is
loaded when it is asked for, since what it needs may be heavy, or not there. Two slashes make
another scheme where the table has it."""

_LOOK = 0.05
"""Seconds for which one of several fleets is listened to, while the others wait."""


def open_fleet(words: Sequence[str], site: Site) -> Fleet:
    """Start the agents of all these fleets. Raises NoFleet, UsageError and NoTorchPython."""
    opened: list[Fleet] = []
    openings = [_opening(each) for each in words]
    twice = {each for each in words if words.count(each) > 1}
    if twice or not words:
        raise NoFleet(f"the fleet {twice.pop()} is named twice" if twice else "say which fleet")
    site = replace(site, here=agents_here(words))
    try:
        for opening, rest in openings:
            opened.append(opening(rest, site))
    except BaseException:
        for fleet in opened:
            fleet.stop()
        raise
    return opened[0] if len(opened) == 1 else Joined(opened)


def agents_here(words: Sequence[str]) -> int:
    """Of all local fleets together. Raises NoFleet."""
    local = [each.partition(":")[2] for each in words if each.partition(":")[0] == LOCAL]
    return sum(map(count_local, local))


def _opening(words: str) -> tuple[Callable[[str, Site], Fleet], str]:
    """What opens it, and the words for that."""
    scheme = words.partition(":")[0].partition("?")[0]
    rest = words[len(scheme) :].removeprefix(":")
    if scheme == "ssh":
        raise NotAFleet("fleets over ssh were removed: start a Ray cluster and use --fleet ray")
    if scheme not in SCHEMES:
        known = ", ".join(each for each in SCHEMES if "/" not in each)
        raise NotAFleet(f"no fleet {words!r}{did_you_mean(scheme, SCHEMES)}; there are {known}")
    slashes = f"{scheme}://"
    key = slashes if words.startswith(slashes) and slashes in SCHEMES else scheme
    module, _, name = SCHEMES[key].partition(":")
    opening: Callable[[str, Site], Fleet] = getattr(import_module(module), name)
    return opening, rest.removeprefix("//")


class Joined:
    """Several fleets as one. Their agents' names differ."""

    def __init__(self, fleets: Sequence[Fleet]) -> None:
        """Raises NoFleet where two agents have one name, and stops them all."""
        self._fleets = list(fleets)
        names = [name for fleet in fleets for name in fleet.agents]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            self.stop()
            raise NoFleet(f"{', '.join(sorted(twice))} would be used by two fleets at once")
        self._of = {name: fleet for fleet in fleets for name in fleet.agents}

    @property
    def agents(self) -> Collection[str]:
        return [name for fleet in self._fleets for name in fleet.agents]

    def offer(self, agent: str, message: ToAgent) -> None:
        if agent in self._of:
            self._of[agent].offer(agent, message)

    def results(self, timeout: float) -> Sequence[ToDriver]:
        end = time.monotonic() + timeout
        heard: list[ToDriver] = []
        while True:
            for fleet in self._fleets:
                left = max(0.0, end - time.monotonic())
                wait = 0.0 if heard else min(left, _LOOK / len(self._fleets))
                for message in fleet.results(wait):
                    if self._of.setdefault(message.agent, fleet) is fleet:
                        heard.append(message)
            if heard or time.monotonic() >= end:
                return heard

    def stop(self) -> None:
        for fleet in self._fleets:
            fleet.stop()
