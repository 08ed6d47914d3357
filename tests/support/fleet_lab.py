"""Runs of `tune --fleet` whose workers wait instead of computing: here, or in a process of their
own that is there to be killed (`python -m tests.support.fleet_lab FOLDER WORD COUNT SECONDS`)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout
from rocm_tui.fleet.facts import FleetOptions
from rocm_tui.fleet.local import LocalDevices
from rocm_tui.fleet.results import Results
from rocm_tui.fleet.units import Unit
from tests.support.waiting_workers import times_of, waiting_job, waiting_python

PATIENCE = 240.0


def waiting_units(count: int, seconds: float) -> list[Unit]:
    """Problems of ascending numbers, the first begun first."""
    numbers = range(1, count + 1)
    return [Unit(f"unit{n}", f"mm {n}", waiting_job(n, seconds)) for n in numbers]


def run(folder: Path, word: str, units: list[Unit], wanted: FleetOptions | None = None) -> Results:
    """Tune the units on `word` into the folder's cache dir."""
    layout, python = Layout(folder / "cache"), waiting_python(folder)
    results = Results(layout, units, workers_write=word.startswith("local"))
    wanted = wanted or FleetOptions()
    if word.startswith("local"):
        with LocalDevices(layout, [word], python) as devices:
            devices.tune(results, wanted)
        return results
    from rocm_tui.fleet.cluster import Cluster  # Ray may not be installed

    with Cluster(word) as cluster:
        cluster.tune(results, _with_python(wanted, python))
    return results


def _with_python(wanted: FleetOptions, python: str) -> FleetOptions:
    return FleetOptions(
        wanted.repeat, wanted.missing, wanted.device_class, python, wanted.tell, wanted.look
    )


def kept(folder: Path) -> Mapping[str, Mapping[str, float]]:
    """The times in the cache by inputs key."""
    files, problems = read_caches(Layout(folder / "cache"))
    assert problems == []
    return {key.inputs: times for file in files for key, times in file.entries.items()}


def assert_right(entries: Mapping[str, Mapping[str, float]]) -> None:
    """Each entry has one worker's whole set of times."""
    for inputs, times in entries.items():
        assert times == times_of(inputs)


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


if __name__ == "__main__":
    place, fleet, count, seconds = sys.argv[1:]
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    run(Path(place), fleet, waiting_units(int(count), float(seconds)), FleetOptions(missing=True))
