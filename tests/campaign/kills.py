"""SIGKILL at each change of the disk, in the middle of writes, and several in a row: in pin, repin,
unpin, reconcile, insert and fold, beside a stock writer's old copies.

A story is one cache dir. Its steps run each in a process of its own, most of which are killed; what
a process said it had done must be there at the end, and nothing else may be left.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.cache import lookup as tuned_cache
from backend.cache.autotune import is_raised, measured_ms
from backend.cache.journal import Tuned
from backend.cache.lookup import TunedCache
from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.pins.holders import pinned_choices
from backend.pins.store import PinStore
from tests.campaign import Figure
from tests.campaign._deaths import Death, forked

CHOICES = 4
KEYS = [TuningKey("mm", f"[{n}]", "highest") for n in range(3)]
SYSTEM = "s"
Acknowledge = Callable[[str], None]


def run(folder: Path, seconds: float, seed: int) -> Iterator[Figure]:
    end = time.monotonic() + seconds
    total: Counter[str] = Counter()
    first: dict[str, str] = {}
    number = 0
    while time.monotonic() < end:
        number += 1
        story = Story(folder / str(number), random.Random(f"{seed} {number}"))
        try:
            story.play()
            bad = list(story.judge())
        finally:
            shutil.rmtree(story.root, ignore_errors=True)
        total.update(story.counts)
        for what, how in bad:
            total[what] += 1
            first.setdefault(what, f"story {number}: {how}")
    kills, acknowledged = total["kills"], total["acknowledged"]
    tries = {
        "acknowledged entries lost": acknowledged,
        "acknowledged pins and unpins lost": total["decisions"],
        "files torn": kills,
        "temporary files left after the next writer": kills,
        "raised numbers without a pin": kills,
        "errors after a kill": kills,
    }
    for what, count in tries.items():
        note = first.get(what, f"{kills:,} kills" if "left" in what else "")
        yield Figure(f"kills: {what}", count, total[what], "0", note)


@dataclass
class Story:
    """One cache dir, and what its processes said they had done."""

    root: Path
    rng: random.Random
    entries: dict[str, float] = field(default_factory=dict)
    """The time of each insert that was acknowledged, by inputs."""
    pinned: dict[str, set[str | None]] = field(default_factory=dict)
    """Which choices may be pinned, by inputs; None is none."""
    counts: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    number: int = 0

    def __post_init__(self) -> None:
        self.layout = Layout(self.root)
        self.path = self.layout.autotune / SYSTEM
        self.pinned = {key.inputs: {None} for key in KEYS}
        self._make()

    def _make(self) -> None:
        self.path.parent.mkdir(parents=True)
        times = {key.inputs: {"highest": _times(1.0)} for key in KEYS}
        document = {"system": {}, "cache": {"mm": times}}
        self.path.write_text(json.dumps(document, indent=4))
        self.old_copy = self.path.read_bytes()
        graph = self.layout.fxgraph / "ab" / "key" / "entry"
        graph.parent.mkdir(parents=True)
        graph.write_bytes(b"not a graph")

    def play(self) -> None:
        for _ in range(self.rng.randint(2, 6)):
            action = self.rng.choice(
                [self._insert, self._insert, self._pin, self._pin, self._unpin, self._reconcile,
                 self._fold, self._stock]
            )  # fmt: skip
            action()

    # Steps. Each runs in a child that is killed, unless it ends before.

    def _child(self, name: str, action: Callable[[Acknowledge], None], most: int) -> list[str]:
        step = self.rng.randint(1, most)
        share = self.rng.choice([0.0, 0.0, self.rng.random()])
        ended = forked(action, Death(step, share))
        self.told.append(f"{name}@{step}/{share:.2f}{'' if ended.killed else ' done'}")
        self.counts["kills"] += ended.killed
        self.counts[f"kill in {name}"] += ended.killed
        if ended.error is not None:
            self.errors.append(f"{name}: {ended.error}")
        return ended.acknowledged

    def _insert(self) -> None:
        """Some tunings in a row. A big file is not folded at once."""
        small = self.rng.choice([0, 1 << 20])
        plan = []
        for _ in range(self.rng.randint(1, 4)):
            self.number += 1
            plan.append((f"[new {self.number}]", float(self.number)))
        if self.rng.random() < 0.3:
            plan.append((self.rng.choice(KEYS).inputs, 1.0))

        def action(acknowledge: Acknowledge) -> None:
            tuned_cache.SMALL = small
            cache = self._cache()
            cache.view()
            for inputs, ms in plan:
                cache.insert([Tuned("mm", inputs, "highest", _times(ms), time.time())])
                acknowledge(inputs)

        done = self._child("insert", action, 30 + 40 * len(plan) * (small > 0))
        self.entries.update((inputs, ms) for inputs, ms in plan if inputs in done)
        self.counts["acknowledged"] += len(done)

    def _pin(self) -> None:
        key = self.rng.choice(KEYS)
        hash_ = f"c{self.rng.randrange(CHOICES)}"

        def action(acknowledge: Acknowledge) -> None:
            PinStore(self.layout).pin(SYSTEM, key, hash_, hash_)
            acknowledge("pinned")

        self._decide("pin", key, hash_, self._child("pin", action, 100))

    def _unpin(self) -> None:
        key = self.rng.choice(KEYS)

        def action(acknowledge: Acknowledge) -> None:
            store = PinStore(self.layout)
            if any(pin.inputs == key.inputs for pin in store.pins()):
                store.unpin(key)
                acknowledge("unpinned")

        self._decide("unpin", key, None, self._child("unpin", action, 90))

    def _decide(self, name: str, key: TuningKey, hash_: str | None, done: list[str]) -> None:
        if done:
            self.counts["decisions"] += 1
            self.pinned[key.inputs] = {hash_}
        else:
            self.pinned[key.inputs].add(hash_)

    def _reconcile(self) -> None:
        thorough = self.rng.random() < 0.5
        self._child("reconcile", lambda _: _none(PinStore(self.layout).reconcile(thorough)), 70)

    def _fold(self) -> None:
        self._child("fold", lambda _: self._cache().fold(), 50)

    def _stock(self) -> None:
        """A stock process adds an entry to a copy that it read some time ago, or just now."""
        now = self.path.read_bytes() if self.path.exists() else self.old_copy
        document = json.loads(self.rng.choice([self.old_copy, now]))
        self.number += 1
        document["cache"]["mm"][f"[stock {self.number}]"] = {"highest": _times(9.0)}
        new = self.path.with_name(".stock")
        new.write_text(json.dumps(document, indent=4))
        new.replace(self.path)
        self.told.append("stock")

    def _cache(self) -> TunedCache:
        return TunedCache(self.path, {}, lambda text: self.errors.append(text), pinned_choices)

    # The end

    def judge(self) -> Iterator[tuple[str, str]]:
        """What broke its promise, each with how it was seen; after the next writers were here."""
        tale = ", ".join(self.told)
        for text in self.errors:
            yield "errors after a kill", f"{text} ({tale})"
        known = forked(self._next_writers, None)
        if known.error is not None:
            yield "errors after a kill", f"{known.error} ({tale})"
            return
        try:
            times = {
                inputs: by["highest"]
                for inputs, by in json.loads(self.path.read_bytes())["cache"]["mm"].items()
            }
            pins = {pin.inputs: pin.hash for pin in PinStore(self.layout).pins()}
            for line in self._journal_lines():
                json.loads(line)
        except Exception as error:
            yield "files torn", f"{error} ({tale})"
            return
        for inputs, ms in self.entries.items():
            found = {name: measured_ms(value) for name, value in times.get(inputs, {}).items()}
            if found != _times(ms):
                yield "acknowledged entries lost", f"{inputs}: {found} ({tale})"
        for inputs, wanted in self.pinned.items():
            if pins.get(inputs) not in wanted:
                yield "acknowledged pins and unpins lost", f"{pins.get(inputs)} {wanted} ({tale})"
        for inputs, found in times.items():
            raised = {name for name, value in found.items() if is_raised(value)}
            right = set(found) - {pins[inputs]} if inputs in pins else set()
            if raised != right or math.inf in found.values():
                yield "raised numbers without a pin", f"{inputs}: {raised} {right} ({tale})"
        for path in sorted(self.root.rglob("*")):
            if "rocm_tui." in path.name:
                yield "temporary files left after the next writer", f"{path.name} ({tale})"

    def _next_writers(self, _: Acknowledge) -> None:
        cache = self._cache()
        cache.view()
        cache.fold()
        cache.insert([Tuned("mm", "[last]", "highest", _times(5.0), time.time())])
        PinStore(self.layout).reconcile(thorough=True)
        PinStore(self.layout).reconcile(thorough=True)
        if self.errors:
            raise RuntimeError(self.errors[-1])

    def _journal_lines(self) -> list[bytes]:
        with suppress(OSError):
            path = self.layout.home / "tuned" / f"{SYSTEM}.jsonl"
            return path.read_bytes().splitlines()
        return []


def _times(ms: float) -> dict[str, float]:
    return {f"c{n}": ms + n for n in range(CHOICES)}


def _none(_: Any) -> None:
    return None
