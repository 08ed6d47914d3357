"""The choices of one autotune cache entry, by the device of the box that they were generated for.

The entry has no device in its key, so the choices of all devices of a box are in one object. What
reading a module said of a hash is remembered: a cache file is read again after every tuning.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from backend.cache.variants import DEVICES, ChoiceVariants, device_folders, may_differ
from backend.disk.layout import Layout

_SAMPLE = 64
"""Cache entries in which several devices are looked for."""
_HEAD = 64 << 10
"""Characters of generated code that name its device."""
_INDEX = re.compile(r"\bDeviceProperties\(type='\w{1,20}', index=(\d{1,4}), ")


class DeviceHash(NamedTuple):
    """The index of a hash's device, None for any, and the hash of the same kernel on device 0."""

    device: int | None
    identity: str


@dataclass(frozen=True, slots=True)
class DeviceEntry:
    """An autotune cache entry as the device `index` sees it; None where it is unknown.

    `identities` are the hashes of its kernels on device 0. `shared` are the choices whose time may
    be another device's. The device of `unplaced` choices is unknown: this one or another.
    """

    index: int | None
    timings: Mapping[str, float]
    identities: Mapping[str, str] = field(default_factory=dict)
    shared: frozenset[str] = frozenset()
    unplaced: frozenset[str] = frozenset()


class DeviceHashes:
    """What is known of the choice hashes below the cache dir `root`, that these `devices` use."""

    def __init__(self, root: Path, devices: Iterable[int]) -> None:
        self._variants = ChoiceVariants(root)
        self._devices = frozenset(devices)
        self._known: dict[str, DeviceHash] = {}

    def entries(self, timings: Mapping[str, float]) -> list[DeviceEntry]:
        """Return `timings` as each device sees them: its own choices, and the choices with one hash
        for all devices. Return one entry if no choice's device is known."""
        own: dict[int, dict[str, float]] = {}
        identities: dict[str, str] = {}
        shared: dict[str, float] = {}
        unplaced: dict[str, float] = {}
        for name, ms in timings.items():
            if not may_differ(name):
                shared[name] = ms
                continue
            variant = self.find(name)
            if variant is None:
                unplaced[name] = ms
                continue
            identities[name] = variant.identity
            if variant.device is None:  # compiled for any device
                shared[name] = ms
            else:
                own.setdefault(variant.device, {})[name] = ms
        if not own:
            return [DeviceEntry(None, timings)]
        others, unknown = frozenset(shared if len(own) > 1 else ()), frozenset(unplaced)
        return [
            DeviceEntry(index, {**times, **shared, **unplaced}, identities, others, unknown)
            for index, times in sorted(own.items())
        ]

    def find(self, name: str) -> DeviceHash | None:
        """Return the device of a hash; None without a module, which may come later. A module gives
        the hashes of the other devices as well."""
        if name not in self._known and self._variants.is_known(name):
            own = self._variants.device(name)
            if own is None:
                self._known[name] = DeviceHash(None, name)
            else:
                hashes = self._variants.all(name, {0, own, *self._devices})
                for index, hash_ in hashes.items():
                    self._known[hash_] = DeviceHash(index, hashes[0])
        return self._known.get(name)

    def device(self, choices: Iterable[str]) -> int | None:
        """Return the device of choices that were offered together."""
        variant = self.find(next(filter(may_differ, choices), ""))
        return None if variant is None else variant.device


def device_index_in(code: str) -> int | None:
    """The index of the device that Inductor generated `code` for; None for a CPU."""
    match = _INDEX.search(code, 0, _HEAD)
    return int(match[1]) if match else None


def hashes_below(root: Path, entries: Iterable[Collection[str]] = ()) -> DeviceHashes | None:
    """Return what this process knows of the hashes below the cache dir `root`; None where no more
    than one device compiled anything there. `entries` are hashes that share a cache entry."""
    devices = device_folders(root)
    if len(devices) < 2:
        devices = _devices_of(entries, root)
    return None if len(devices) < 2 else _hashes_of(root, tuple(devices))


def _devices_of(entries: Iterable[Collection[str]], root: Path) -> list[int]:
    """Return the devices of `entries`. One process that compiles for several devices puts all that
    Triton makes into the folder of the first, so only the hashes show it. A few entries are looked
    at, and one choice of each: its hash on another device is in the same entry."""
    variants = ChoiceVariants(root)
    devices: set[int] = set()
    for hashes in islice(entries, _SAMPLE):
        name = next(filter(may_differ, hashes), "")
        own = variants.device(name)
        if own is not None:
            devices.update(
                (own, *(index for index in DEVICES if variants.on(name, index) in hashes))
            )
    return sorted(devices)


def hashes_of_log(source: str) -> DeviceHashes | None:
    """Return the hashes below the cache dir that holds an event log; None for a log elsewhere. The
    cache dir that a log names is ignored: it may be anybody's."""
    sessions = Path(source).parent
    root = sessions.parent.parent
    return hashes_below(root) if Layout(root).sessions == sessions else None


@lru_cache(maxsize=8)
def _hashes_of(root: Path, devices: tuple[int, ...]) -> DeviceHashes:
    return DeviceHashes(root, devices)
