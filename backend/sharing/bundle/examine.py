"""What of a bundle is here already, and which pins would its graphs hide? Nothing is changed."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from backend.cache.autotune import INFINITY, cache_paths, parse_cache, read_cache
from backend.disk.layout import Layout
from backend.disk.safe import open_regular
from backend.errors import CacheUnreadable
from backend.model.problem import TuningKey
from backend.pins.file import Record, read_pin_file
from backend.pins.graphs.match import Verdict, Wanted, judge, may_hold
from backend.pins.graphs.text import read_graph_text
from backend.pins.state import GraphSweeper
from backend.pins.store import PinStore
from backend.sharing.bundle.archive import Arrived
from backend.sharing.bundle.manifest import Manifest, Member
from backend.sharing.bundle.moved import other_root
from backend.sharing.bundle.pack import GROUP, with_folder
from backend.sharing.bundle.parts import part_of, place_of
from backend.sharing.plan import Difference, Step, steps_of
from backend.sharing.share import Machine, Share, SharedPin, parse_share

MAX_JSON = 256 << 20
"""Bytes of a cache file or of the pins in a bundle: such are parsed as a whole."""
MAX_GRAPH = 256 << 20
"""A bigger graph is not looked at: it is constants, not code."""
_STRETCH = 1 << 20


@dataclass(frozen=True, slots=True)
class Hidden:
    """A graph of the bundle and a pin that it would hide: its code calls another choice, or does
    not tell which."""

    graph: str
    pin: str
    label: str
    verdict: Verdict

    @property
    def surely(self) -> bool:
        return self.verdict == "other"


@dataclass(frozen=True, slots=True)
class Timings:
    """What becomes of the tunings of one cache file: not here yet; here with fewer choices, and
    replaced as a whole; here."""

    system_hash: str
    new: int = 0
    wider: int = 0
    same: int = 0


@dataclass(slots=True)
class Examined:
    """What a bundle is, and would do here. `states` tell of each file: `new`, `same` as here, or
    `kept`: here is another one, which stays."""

    manifest: Manifest
    size: int
    sha256: str = ""
    steps: Sequence[Step] = ()
    differences: Mapping[Machine, Sequence[Difference]] = field(default_factory=dict)
    timings: list[Timings] = field(default_factory=list)
    hidden: list[Hidden] = field(default_factory=list)
    moved: dict[str, str] = field(default_factory=dict)
    """Graphs whose kernels are in a cache dir at another path, and that path."""
    states: dict[str, Literal["new", "same", "kept", "nowhere"]] = field(default_factory=dict)
    share: Share = field(default_factory=lambda: Share(()))

    @property
    def pins_fit(self) -> bool:
        return not any(step.action == "refused" for step in self.steps)

    def left_out(self) -> set[str]:
        """Graphs that would surely hide a pin."""
        return {hidden.graph for hidden in self.hidden if hidden.surely}

    def counts(self, part: str) -> Counter[str]:
        """How many files of a part are in each state."""
        found = ((m, part_of(m.name)) for m in self.manifest.members)
        return Counter(
            self.states.get(m.name, "new") for m, its in found if its and its.name == part
        )


def examine(
    path: Path, layout: Layout, here: Machine, chosen: Collection[str], elsewhere: Path | None
) -> Examined:
    """Read all of a bundle, check each digest, and compare it with what is here; nothing is
    changed. Raises BundleInvalid, ShareInvalid and CacheUnreadable."""
    with Arrived(path) as bundle:
        found = Examined(bundle.manifest, bundle.size)
        wanted: list[tuple[str, str, Wanted]] | None = None
        tuned: dict[TuningKey, Mapping[str, float]] = {}
        for member, parts in bundle.members():
            part = part_of(member.name)
            if part is None or part.name not in chosen:
                continue
            if part.name == "pins":
                found.share = parse_share(_whole(bundle, member, parts), member.name)
            elif part.name == "timings":
                system_hash = Path(member.name).name
                entries = _entries(bundle, member, parts)
                found.timings.append(_merging(layout, system_hash, entries))
                if system_hash == here.system_hash:
                    tuned = dict(entries)
            else:
                if wanted is None:
                    found.steps = _steps(found.share, here, layout, tuned)
                    wanted = _pins(layout, found.steps)
                if part.name == "graphs" and member.size <= MAX_GRAPH:
                    data = b"".join(parts)
                    found.hidden += _hidden(member.name, data, wanted)
                    if (root := other_root(data, layout.root)) is not None:
                        found.moved[member.name] = root
                    parts = iter((data,))
                found.states[member.name] = _state(member, parts, layout, elsewhere)
        if wanted is None:
            found.steps = _steps(found.share, here, layout, tuned)
        found.sha256 = bundle.sha256()
    return found


def _whole(bundle: Arrived, member: Member, parts: Iterable[bytes]) -> bytes:
    if member.size > MAX_JSON:
        raise bundle.invalid(f"{member.name} has more than {MAX_JSON >> 20} MiB")
    return b"".join(parts)


def _entries(
    bundle: Arrived, member: Member, parts: Iterable[bytes]
) -> Mapping[TuningKey, Mapping[str, float]]:
    try:
        file = parse_cache(Path(member.name), _whole(bundle, member, parts))
    except CacheUnreadable as error:
        raise bundle.invalid(str(error)) from error
    texts = ((*key, *times) for key, times in _named(file.entries))
    if file.problems or not all(text.isprintable() for names in texts for text in names):
        raise bundle.invalid(f"{member.name} holds what Inductor does not write")
    return file.entries


def _named(
    entries: Mapping[TuningKey, Mapping[str, float]],
) -> Iterator[tuple[tuple[str, str, str], Mapping[str, float]]]:
    for key, times in entries.items():
        yield (key.op, key.inputs, key.precision), times


def _merging(
    layout: Layout, system_hash: str, entries: Mapping[TuningKey, Mapping[str, float]]
) -> Timings:
    there: Mapping[TuningKey, Mapping[str, float]] = {}
    path = layout.autotune / system_hash
    if path in cache_paths(layout):
        there = read_cache(path).entries
    kinds = Counter(what_becomes(there.get(key), times) for key, times in entries.items())
    return Timings(system_hash, kinds["new"], kinds["wider"], kinds["same"])


def what_becomes(
    here: Mapping[str, float] | None, arriving: Mapping[str, float]
) -> Literal["new", "wider", "same"]:
    """Of one tuning: all its times are of one card, so a set that has more choices is taken as a
    whole, and none is mixed from two."""
    if here is None:
        return "new"
    return "same" if arriving.keys() <= here.keys() else "wider"


def _steps(
    share: Share,
    here: Machine,
    layout: Layout,
    tuned: Mapping[TuningKey, Mapping[str, float]],
) -> list[Step]:
    """What an import would do once the timings of the bundle are here."""
    steps = steps_of(share.pins, here, PinStore(layout))
    return [
        replace(step, action="pin", detail="its times come with it")
        if step.action == "wait" and step.pin.hash in tuned.get(step.pin.key, ())
        else step
        for step in steps
    ]


def _pins(layout: Layout, steps: Sequence[Step]) -> list[tuple[str, str, Wanted]]:
    """Id, label and wanted choice of each pin that is here once the bundle was taken in."""
    sweeper = GraphSweeper(layout)
    arriving = {(step.pin.op, step.pin.inputs): step.pin for step in steps if step.changes}
    records = [
        record
        for record in read_pin_file(layout.pins).pins
        if (record.op, record.inputs) not in arriving
    ]
    records += [_record(pin) for pin in arriving.values()]
    found = ((r.pin.id, r.label or r.hash, sweeper.wanted(r)) for r in records)
    return [(id, label, wanted) for id, label, wanted in found if wanted is not None]


def _record(pin: SharedPin) -> Record:
    texts = {
        precision: {name: repr(ms) if math.isfinite(ms) else INFINITY for name, ms in times.items()}
        for precision, times in pin.timings.items()
    }
    return Record(
        pin.op,
        pin.inputs,
        pin.precision,
        pin.hash,
        pin.label,
        pin.machine.system_hash or "",
        texts,
        dict(pin.config),
    )


def _hidden(name: str, data: bytes, pins: Sequence[tuple[str, str, Wanted]]) -> Iterator[Hidden]:
    concerned = [pin for pin in pins if may_hold(data, pin[2])]
    if not concerned:
        return
    text = read_graph_text(data)
    for id, label, wanted in concerned:
        verdict = judge(text, wanted)
        if verdict not in ("absent", "same"):
            yield Hidden(name, id, label, verdict)


def _state(
    member: Member, parts: Iterable[bytes], layout: Layout, elsewhere: Path | None
) -> Literal["new", "same", "kept", "nowhere"]:
    place = place_of(member.name, layout, elsewhere)
    if place is None:
        return "nowhere"
    path, _ = place
    digest, size = hashlib.sha256(), 0
    try:
        with open_regular(path) as stream:
            while part := stream.read(_STRETCH):
                digest.update(part)
                size += len(part)
    except FileNotFoundError:
        return "new"
    except OSError:
        return "kept"
    if (size, digest.hexdigest()) == (member.size, member.sha256):
        return "same"
    if path.name.startswith(GROUP):
        there = with_folder(b"".join(parts), path.parent)
        return "same" if hashlib.sha256(there).hexdigest() == digest.hexdigest() else "kept"
    return "kept"
