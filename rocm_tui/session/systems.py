"""Which system tuned something, and so which repeated measurements tell of it.

A system is a device with its Triton; Inductor names its cache files by a hash of both. On ROCm
their first lines name the device too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backend.disk.safe import open_regular
from backend.errors import StoreError
from backend.model.choice import Measurement
from backend.model.origin import device_kind
from backend.model.session import Session, systems_of
from backend.model.tuning import Tuning
from rocm_tui.harmless import clean
from rocm_tui.ingest.records import MeasurementSeen
from rocm_tui.session.merge import of_one_device

CACHE_FILES = "cache"
"""The folder of Inductor's persistent cache, whose files are named by their system's hash."""


class Measurements:
    """All measurements that the sources tell of, by op and inputs key."""

    def __init__(self) -> None:
        self._by_problem: dict[tuple[str, str], list[MeasurementSeen]] = {}

    def add(self, seen: MeasurementSeen) -> set[tuple[str, str]]:
        """Take one in; the op and the inputs key that it is about."""
        about = (seen.measurement.op, seen.measurement.inputs)
        known = self._by_problem.setdefault(about, [])
        if seen in known:
            return set()
        known.append(seen)
        return {about}

    def forget(self, source: str) -> set[tuple[str, str]]:
        """Drop those of a source; what they were about."""
        touched = set()
        for about, known in list(self._by_problem.items()):
            kept = [seen for seen in known if seen.source != source]
            if len(kept) != len(known):
                self._by_problem[about] = kept
                touched.add(about)
        return touched

    def attach(self, tuning: Tuning, sessions: Mapping[str, Session]) -> Tuning:
        """The tuning with the measurement that counts, if there is one of the same system."""
        known = self._by_problem
        if not known or (tuning.op, tuning.inputs_key or "") not in known:
            return tuning
        fits = counting(tuning, self.of(tuning, sessions))
        return replace(tuning, measured=fits[0]) if fits else tuning

    def of(self, tuning: Tuning, sessions: Mapping[str, Session]) -> tuple[Measurement, ...]:
        """All that tell of a tuning, of the same system, latest first."""
        known = self._by_problem.get((tuning.op, tuning.inputs_key or ""))
        if not known:
            return ()
        systems = systems_of(tuning, sessions)
        fits = [seen.measurement for seen in known if _tells_of(seen.measurement, tuning, systems)]
        return tuple(dict.fromkeys(sorted(fits, key=lambda m: m.when, reverse=True)))


def counting(tuning: Tuning, measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Of measurements, latest first, those that count: all hot or all cold.

    On a GPU cold ones count, where there are any: the weights of a layer have left the caches when
    a model comes back to it. Elsewhere those that are like the latest.
    """
    kinds = dict.fromkeys(measurement.caches for measurement in measurements)
    if not kinds:
        return ()
    on_gpu = device_kind(tuning) not in (None, "cpu")
    kind = "cold" if on_gpu and "cold" in kinds else next(iter(kinds))
    return tuple(measurement for measurement in measurements if measurement.caches == kind)


def _tells_of(measurement: Measurement, tuning: Tuning, systems: frozenset[str]) -> bool:
    if measurement.precision != tuning.precision:
        return False
    if systems and measurement.system_hash and measurement.system_hash not in systems:
        return False  # the same problem on another device
    own = tuning if tuning.device_index is None else of_one_device(tuning)
    return any(measurement.of(choice.hash) for choice in own.choices if choice.hash)


_MARK = '"system":'
_HEAD = 8192


def device_names(paths: Iterable[str]) -> dict[str, str]:
    """The devices, on ROCm architectures, that cache files name in their first lines, by path.

    Reads the beginnings of those that are such files: call it off the event loop.
    """
    return {path: name for path in paths if (name := _device_name(path))}


def _device_name(path: str) -> str | None:
    device = _system(Path(path)).get("device")
    name = device.get("name") if isinstance(device, dict) else None
    return clean(name)[:200] if isinstance(name, str) else None


@dataclass(frozen=True, slots=True)
class Versions:
    """What a cache file says of its system; empty where it does not."""

    triton: str = ""
    hip: str = ""


def system_versions(path: Path) -> Versions:
    """Reads the beginning of a cache file: call it off the event loop."""
    told = _system(path).get("version")
    if not isinstance(told, dict):
        return Versions()
    triton, hip = told.get("triton"), told.get("hip")
    return Versions(_triton(triton), clean(hip)[:40] if isinstance(hip, str) else "")


def _triton(key: object) -> str:
    """`3.9.0` of `3.9.0<64 hex digits>-...`, Triton's version and what its own files hash to."""
    first = str(key).partition("-")[0] if isinstance(key, str) else ""
    return clean(first[:-_DIGEST] if len(first) > _DIGEST else first)[:40]


_DIGEST = 64


def _system(path: Path) -> dict[str, Any]:
    """What stands there under `system`; nothing of a file that is none."""
    try:
        with open_regular(path, follow=True) as file:
            text = file.read(_HEAD).decode(errors="replace")
        at = text.index(_MARK) + len(_MARK)
        system, _ = json.JSONDecoder().raw_decode(text[at:].lstrip())
    except (OSError, StoreError, ValueError, RecursionError):
        return {}
    return system if isinstance(system, dict) else {}
