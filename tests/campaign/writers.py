"""Sixteen processes of ours tune, and are killed now and then, while two processes of stock PyTorch
tune into the same cache file without a lock, and pins are made and taken back.

Stock writes last, from a copy that it has had for some time; then one process of ours looks.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from backend.cache.autotune import is_raised, measured_ms
from backend.cache.journal import Tuned
from backend.cache.lookup import TunedCache
from backend.disk.layout import Layout
from backend.errors import StoreError
from backend.pins.holders import pinned_choices
from backend.pins.store import PinStore
from tests.campaign import Figure
from tests.support.race_lab import KEY, go, start

OURS, STOCK = 16, 2
TIMES = {f"c{n}": 0.5 + n for n in range(10)}
"""What the stock writers measure, too."""


def run(folder: Path, seconds: float, seed: int) -> Iterator[Figure]:
    rng = random.Random(seed)
    layout = Layout(folder / "cache dir")
    stock = [start(layout, f"op{n}", 10**6) for n in range(STOCK)]
    path = next(path for path in layout.autotune.iterdir() if not path.name.startswith("."))
    copies = [path.read_bytes()]
    for child in stock:
        go(child)
    ours: list[Writer] = [Writer(layout, path, n) for n in range(OURS)]
    store = PinStore(layout)
    decisions = kills = 0
    end = time.monotonic() + max(5.0, seconds - 15)
    while time.monotonic() < end:
        time.sleep(rng.uniform(0.0, 0.05))
        with suppress(StoreError):
            if rng.random() < 0.5:
                store.pin(path.name, KEY, f"c{rng.randrange(10)}")
            else:
                store.unpin(KEY)
            decisions += 1
        if rng.random() < 0.2:
            writer = rng.choice(ours)
            writer.kill()
            ours.append(Writer(layout, path, len(ours)))
            kills += 1
        if rng.random() < 0.2:
            copies = [*copies[-3:], path.read_bytes()]
    for child in stock:
        child.kill()
        child.wait()
    for writer in ours:
        writer.kill()
    path.with_name(".stock").write_bytes(copies[0])
    path.with_name(".stock").replace(path)
    yield from _judged(layout, path, [name for writer in ours for name in writer.told()], kills)
    yield from _pins_judged(layout, path, decisions)


class Writer:
    """A process that tunes until it is killed, and says of each entry that it is kept."""

    def __init__(self, layout: Layout, path: Path, number: int) -> None:
        self._log = layout.root / f"told-{number}"
        self._pid = os.fork()
        if self._pid == 0:
            try:
                with self._log.open("w", buffering=1) as log:
                    cache = TunedCache(path, {}, lambda text: None, pinned_choices)
                    rng = random.Random(number)
                    for n in range(10**6):
                        cache.view()
                        name = f"[{number} {n}]"
                        cache.insert([Tuned("ours", name, "highest", TIMES, time.time())])
                        log.write(f"{name}\n")
                        time.sleep(rng.uniform(0.0, 1.0))
            finally:
                os._exit(1)

    def kill(self) -> None:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def told(self) -> list[str]:
        text = self._log.read_text() if self._log.exists() else ""
        return [line[:-1] for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _judged(layout: Layout, path: Path, told: list[str], kills: int) -> Iterator[Figure]:
    gone = len(set(told) - _entries(path))
    cache = TunedCache(path, {}, lambda text: None, pinned_choices)
    cache.view()
    cache.fold()
    lost = set(told) - _entries(path)
    note = f"{kills} of ours killed; {gone:,} were not in the file before one of ours looked"
    if lost:
        note = f"e.g. {min(lost)}; {note}"
    yield Figure(
        f"writers: entries of {OURS} of ours beside {STOCK} of stock PyTorch, which writes last",
        len(told), len(lost), "0 lost", note,
    )  # fmt: skip


def _entries(path: Path) -> set[str]:
    found: set[str] = set(json.loads(path.read_bytes())["cache"].get("ours", {}))
    return found


def _pins_judged(layout: Layout, path: Path, decisions: int) -> Iterator[Figure]:
    with suppress(StoreError):
        PinStore(layout).unpin(KEY)
    PinStore(layout).reconcile(thorough=True)
    bad = 0
    cache = json.loads(path.read_bytes())["cache"]
    for by_inputs in cache.values():
        for by_precision in by_inputs.values():
            for times in by_precision.values():
                bad += sum(is_raised(ms) or ms == math.inf for ms in times.values())
    times = cache["mm"][KEY.inputs]["highest"]
    bad += {name: measured_ms(ms) for name, ms in times.items()} != TIMES
    yield Figure("writers: raised or infinite numbers after the last unpin", decisions, bad, "0")
