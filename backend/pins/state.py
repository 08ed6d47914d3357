"""The state of a pin, from a cache file, the compiled graphs and its proofs.

Graphs that contradict a pin are moved aside; graphs that a released pin hid are restored.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from backend.cache.autotune import INFINITY, Numbers
from backend.cache.variants import ChoiceVariants
from backend.counted import counted, device_ranges
from backend.disk.exchange import signature_of
from backend.disk.layout import Layout
from backend.errors import brief
from backend.model.inductor_kernel import TRITON, is_kernel
from backend.model.origin import any_toolchain, is_own
from backend.model.tuning import Pin, PinState, Proof
from backend.pins.file import PinRecord, read_pin_file
from backend.pins.graphs import index as graphs
from backend.pins.graphs.index import GraphEntry, GraphIndex, packages_below
from backend.pins.graphs.match import Verdict, WantedChoice
from backend.pins.graphs.parts import ChoiceSources
from backend.pins.numbers import changes_to_hold, is_held, is_time, is_timed, learn
from backend.tables.model import is_table_op


@dataclass(frozen=True, slots=True)
class GraphDoubt:
    """Compiled graphs that may hide a pin and are left in place: `paths` in the cache dir; `why`
    continues "a compiled graph"; `todo` is what a person can do."""

    paths: tuple[str, ...]
    why: str
    todo: str


@dataclass(frozen=True, slots=True)
class GraphVerdicts:
    """The graphs' verdict on a pin: the graphs that contradict it, the doubtful graphs, and the
    number with its op that appeared after it was proved."""

    stale: tuple[GraphEntry, ...] = ()
    doubts: tuple[GraphDoubt, ...] = ()
    since: int = 0


_CLEAR = "clear {it} or run `rocm-tui verify`"
_MAY = ("may call another kernel", _CLEAR)
_UNREADABLE = ("may hold it and cannot be read", _CLEAR)
_AGAIN = (
    "made again under the pin still {calls} another kernel",
    "its program may not offer this choice (other threads, sizes or settings)",
)
_OF_ANOTHER_SYSTEM = (
    "{calls} the choice pinned for another Triton, ROCm or GPU",
    "`rocm-tui verify -- CMD` shows what your program calls",
)
_PACKAGED = (
    "of AOTInductor {keeps} another kernel",
    "compile the package again",
)


class GraphSweeper:
    """Moves compiled graphs aside and back. Each pin has one folder of evicted graphs, which
    contradict it or, after its release, the measured winner."""

    def __init__(self, layout: Layout, variants: ChoiceVariants | None = None) -> None:
        """Create a sweeper; `variants` are reused if the caller has read them already."""
        self._layout = layout
        self._index = GraphIndex(layout)
        self._sources = ChoiceSources(layout.root)
        self._variants = variants or ChoiceVariants(layout.root)
        self._pins: tuple[object, dict[tuple[str, str], list[PinRecord]]] = (None, {})

    def live(self) -> list[GraphEntry]:
        """Return the compiled graphs where PyTorch finds them."""
        return self._index.live()

    def sweep(self, record: PinRecord) -> tuple[int, int]:
        """Move stale graphs aside and restore those no longer stale; return both counts."""
        folder = self.folder(record)
        live, aside = self._index.live(), self._index.evicted(folder)
        stale = self.stale(record, live)
        kept = {entry.path for entry in self._contradicting(record, aside)}
        moved = graphs.move_aside(self._layout, stale, folder)
        restored = graphs.restore(self._layout, [e for e in aside if e.path not in kept])
        return moved, restored

    def late(self, record: PinRecord) -> int:
        """Return how many stale graphs came after the pin: from a mega-cache, a copying program, or
        a compile that had begun before."""
        stale = self.stale(record, self._index.live())
        return sum(entry.appeared > record.when for entry in stale)

    def stale(self, record: PinRecord, entries: list[GraphEntry]) -> list[GraphEntry]:
        """Return the live `entries` that contradict a pin; of a released one, those made for it."""
        return self._split(record, entries)[0]

    def _split(
        self, record: PinRecord, entries: list[GraphEntry]
    ) -> tuple[list[GraphEntry], list[GraphEntry], list[GraphEntry]]:
        """Split the contradicting entries: those to move, those of another system, and those
        recompiled after a move."""
        stale = self._contradicting(record, entries)
        others = self._of_other_systems(record, stale)
        stale = [entry for entry in stale if entry not in others]
        again = [] if record.released else self._made_again(record, stale)
        return [entry for entry in stale if entry not in again], others, again

    def judged(self, record: PinRecord, entries: list[GraphEntry]) -> GraphVerdicts:
        """Return the verdict of the live `entries`, and of packages, on a pin."""
        stale, others, again = self._split(record, entries)
        wanted = self.wanted(record)
        if record.released or wanted is None:
            return GraphVerdicts(tuple(stale))
        doubtful: dict[tuple[str, str], list[str]] = {
            _OF_ANOTHER_SYSTEM: [entry.relative for entry in others],
            _AGAIN: [entry.relative for entry in again],
        }
        proved = record.proof.when if record.proof else math.inf
        since = 0
        for entry, verdict in zip(entries, self._index.verdicts(entries, wanted), strict=True):
            since += verdict != "absent" and entry.appeared > proved
            # A graph of such a kernel was compiled with its file present.
            unsure = verdict == "unknown" and not is_kernel(record.op)
            if verdict == "unclear" or (unsure and entry.mtime >= record.applied):
                why = _UNREADABLE if not graphs.is_readable(entry) else _MAY
                doubtful.setdefault(why, []).append(entry.relative)
        packages = packages_below(self._layout.root)
        for entry, verdict in zip(packages, self._index.verdicts(packages, wanted), strict=True):
            if verdict not in ("absent", "same"):
                doubtful.setdefault(_PACKAGED, []).append(entry.relative)
        doubts = tuple(GraphDoubt(tuple(p), *words) for words, p in doubtful.items() if p)
        return GraphVerdicts(tuple(stale), doubts, since)

    def folder(self, record: PinRecord) -> Path:
        digest = hashlib.sha256("\n".join(record.identity).encode()).hexdigest()[:16]
        return self._layout.evicted / digest

    def _contradicting(self, record: PinRecord, entries: list[GraphEntry]) -> list[GraphEntry]:
        rulings = self.rulings(record)
        if not rulings:
            return []
        if record.released:
            # Older graphs are not the pin's doing: on a GPU Inductor may have timed fusions and
            # selected another choice than the fastest alone.
            entries = [entry for entry in entries if entry.mtime > record.made]
        since = math.inf if record.released else record.applied
        folder = None if record.released else self.folder(record)
        stale: set[str] = set()
        for wanted in rulings:
            verdicts = self._index.verdicts(entries, wanted)
            pairs = zip(entries, verdicts, strict=True)
            stale |= {e.relative for e, verdict in pairs if _is_stale(verdict, e, since, folder)}
        return [entry for entry in entries if entry.relative in stale]

    def rulings(self, record: PinRecord) -> list[WantedChoice]:
        """Return the choices that graphs should call: the pinned one; for a released pin the winner
        of each device. Empty for kernels of Triton's own autotuning and tuned tables, which no
        graph contains, and for Inductor's kernels, whose graphs do not show the config."""
        if not record.released:
            wanted = self.wanted(record)
            return [] if wanted is None else [wanted]
        if record.op == TRITON or is_table_op(record.op):
            return []
        if is_kernel(record.op):
            return [WantedChoice(record.op, record.inputs, record.hash)]
        times = record.timings.get(record.precision, {})
        split = self._variants.by_device(times)
        shared = split.pop(None, [])
        fastest = {
            index: winner(times, [*shared, *own]) for index, own in (split or {None: []}).items()
        }
        return [self._wanted(record, name, index) for index, name in fastest.items() if name]

    def wanted(self, record: PinRecord) -> WantedChoice | None:
        """Return the pinned choice as graphs should call it; None if it was never timed here, so
        that it could not replace another, and for kernels that no graph contains."""
        if record.op == TRITON or is_table_op(record.op):
            return None
        if is_kernel(record.op):
            return WantedChoice(record.op, record.inputs, record.hash)
        if not is_timed(record):
            return None
        return self._wanted(record, record.hash)

    def _wanted(self, record: PinRecord, hash: str, device: int | None = None) -> WantedChoice:
        rivals = {
            n for texts in record.tokens.values() for n, text in texts.items() if is_time(text)
        }
        config = record.config if hash in record.hashes else {}
        names = (hash, *record.variants.values()) if hash in record.hashes else (hash,)
        apart = (self._sources.distinguishing(name, rivals) for name in names)
        constants = next((constants for constants in apart if constants), {})
        return WantedChoice(
            record.op, record.inputs, hash, tuple(sorted(rivals)), config, constants, device
        )

    def _of_other_systems(self, record: PinRecord, stale: Sequence[GraphEntry]) -> list[GraphEntry]:
        """Return the entries that call the choice pinned for the same tuning in another cache file.
        No graph names its system; older ones than the pin are moved, so that it takes effect."""
        late = [e for e in stale if record.released or e.mtime >= record.applied]
        theirs: set[str] = set()
        for other in self._pinned_elsewhere(record) if late else ():
            if wanted := self.wanted(other):
                verdicts = self._index.verdicts(late, wanted)
                theirs |= {e.relative for e, v in zip(late, verdicts, strict=True) if v == "same"}
        return [entry for entry in late if entry.relative in theirs]

    def _pinned_elsewhere(self, record: PinRecord) -> list[PinRecord]:
        """Return the pins of another choice for the same tuning in other cache files; of any choice
        once the pin is released."""
        signature = signature_of(self._layout.pins)
        if self._pins[0] != signature:
            pins: dict[tuple[str, str], list[PinRecord]] = {}
            for pin in read_pin_file(self._layout.pins).pins:
                pins.setdefault((pin.op, pin.inputs), []).append(pin)
            self._pins = signature, pins
        same = self._pins[1].get((record.op, record.inputs), ())
        return [
            pin
            for pin in same
            if pin.system_hash != record.system_hash
            and (record.released or not record.hashes & pin.hashes)
        ]

    def _made_again(self, record: PinRecord, stale: Sequence[GraphEntry]) -> list[GraphEntry]:
        """Return the entries in folders from which, since the pin was applied, another one was
        moved aside already: a program that does not offer the pinned choice would lose its graph in
        every run."""
        late = [entry for entry in stale if entry.mtime >= record.applied]
        if not late:  # as nearly always: spares a look into the folder
            return []
        moved = self._index.evicted(self.folder(record))
        same = {entry.relative for entry in moved}
        places = {_place(entry) for entry in moved if entry.mtime >= record.applied}
        return [e for e in late if e.relative not in same and _place(e) in places]


def _is_stale(verdict: Verdict, entry: GraphEntry, since: float, folder: Path | None) -> bool:
    """Return whether an entry must be moved. An entry whose text does not show the kernel is moved
    if it is older than the pin: it can be restored. A newer one may have been copied here; it is
    moved if the same content was moved into `folder` before."""
    if verdict != "unknown":
        return verdict == "other"
    return entry.mtime < since or (folder is not None and _returned(entry, folder))


def _returned(entry: GraphEntry, folder: Path) -> bool:
    """Return whether the folder has the same content, whose hash is the entry's name."""
    aside = folder / entry.relative
    return entry.path != aside and os.path.lexists(aside)


def _place(entry: GraphEntry) -> PurePosixPath:
    """Return the folder named after the compiled graph."""
    return PurePosixPath(entry.relative).parent


def winner(times: Mapping[str, float], choices: Iterable[str]) -> str | None:
    """Return the choice among `choices` that wins by the measured times."""
    real = {name: times[name] for name in choices if math.isfinite(times[name])}
    return min(real, key=real.__getitem__, default=None)


GRAPHS_APPEARED = "compiled graphs with another choice had appeared"
"""The cause of a drift that is not in the cache file."""


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    """Whether a pin holds on the device `index`: the hash of its kernel there has a time."""

    index: int
    holds: bool


@dataclass(frozen=True, slots=True)
class PinStatus:
    """A pin with its state; `detail` says in one line what is wrong or was done. `proof` is the
    last evidence from generated code, `stale` why it may be outdated. `devices` says for each
    device that tuned the problem with its own choices whether the pin holds there."""

    pin: Pin
    state: PinState
    detail: str = ""
    proof: Proof | None = None
    stale: str = ""
    devices: tuple[DeviceStatus, ...] = ()


@dataclass(frozen=True, slots=True)
class PinReport:
    """The result of an action: numbers changed in `path`, graphs moved aside and restored. `status`
    is the state read back after a pin; None after an unpin."""

    pin: Pin
    path: Path
    numbers: int
    moved: int
    restored: int
    status: PinStatus | None = None


def state_of(
    record: PinRecord, stored: Numbers | None, graphs: GraphVerdicts, devices: Sequence[int] = ()
) -> PinStatus:
    """Return the state of a pin; `stored` are its numbers in the file, None without a file.
    `devices` tuned the problem with their own choices."""
    status = _state_of(record, stored, graphs)
    on = tuple(DeviceStatus(index, _holds_on(record, stored or {}, index)) for index in devices)
    if status.state == "active" and not all(device.holds for device in on):
        where = device_ranges(device.index for device in on if not device.holds)
        what = f"on {where} it was tuned without a time for {brief(record.label, 60)}"
        status = replace(status, state="unproven", detail=what)
    stale = why_stale(learn(record, stored or {}), graphs.since)
    return replace(status, proof=record.proof, stale=stale, devices=on)


def _holds_on(record: PinRecord, stored: Numbers, index: int) -> bool:
    """Return whether the pinned kernel can win on a device, in some precision."""
    name = record.variants.get(str(index), record.hash)
    return any(
        name in numbers and is_time(record.tokens.get(precision, {}).get(name, INFINITY))
        for precision, numbers in stored.items()
    )


def _state_of(record: PinRecord, stored: Numbers | None, graphs: GraphVerdicts) -> PinStatus:
    pin = record.pin
    if not stored and not is_timed(record):
        return PinStatus(pin, "orphaned", "not tuned here yet; it applies once tuned")
    if not stored:
        what = (
            "the cache file is gone" if stored is None else "the tuning is no longer in the cache"
        )
        return PinStatus(pin, "orphaned", f"{what}; it applies again once tuned")
    record = learn(record, stored)
    held = [precision for precision in stored if is_held(record, stored, precision)]
    if not held:
        return PinStatus(
            pin, "orphaned", f"{brief(record.label, 60)} is no longer among the choices"
        )
    if all(_compiled_anew(record.hash, stored[precision]) for precision in held):
        what = (
            "its kernel was compiled by other headers, flags or another compiler since, and timed "
            "anew: pin it again"
        )
        return PinStatus(pin, "orphaned", what)
    changes = changes_to_hold(record, stored)
    if changes and not record.raised:
        what = "made by an older version, which can break programs; `rocm-tui pin --reconcile`"
        return PinStatus(pin, "drifted", what)
    if changes:
        what = f"{counted(len(changes), 'number was', 'numbers were')} written over ours"
        return PinStatus(pin, "drifted", what)
    if graphs.stale:
        what = f"{counted(len(graphs.stale), 'compiled graph')} made with another choice"
        return PinStatus(pin, "drifted", what)
    free = sorted(set(stored) - set(held))
    if free:
        where = brief(", ".join(free), 60)
        what = f"also tuned with precision {where}, without a time for {brief(record.label, 60)}"
        return PinStatus(pin, "shadowed", what)
    if graphs.doubts:
        return PinStatus(pin, "unproven", "; ".join(_line(doubt) for doubt in graphs.doubts))
    if record.op == TRITON:
        return _launched(record)
    return PinStatus(pin, "active")


def state_of_kernel(
    record: PinRecord, files: int, differing: int, graphs: GraphVerdicts
) -> PinStatus:
    """Return the state of a pin of a kernel that Inductor launches: it has `files` best configs, of
    which `differing` do not name the pinned config."""
    if differing:
        what = f"{counted(differing, 'file was', 'files were')} written over ours by a program"
        status = PinStatus(record.pin, "drifted", f"{what} that tuned the kernel again")
    elif graphs.stale:
        what = f"{counted(len(graphs.stale), 'compiled graph')} made before it was pinned"
        status = PinStatus(record.pin, "drifted", what)
    elif not files:
        status = PinStatus(record.pin, "unproven", NO_FILE)
    else:
        status = _launched(record)
    return replace(status, proof=record.proof, stale=why_stale(record, graphs.since))


def _launched(record: PinRecord) -> PinStatus:
    """Return the state of a Triton kernel's pin: what its own program was seen to launch."""
    pin = record.pin
    if record.proof is None and record.drifts and record.op != TRITON:
        return PinStatus(pin, "unproven", TUNED_OVER.format(counted(record.drifts, "time")))
    if record.proof is None:
        return PinStatus(pin, "unproven", UNSEEN)
    if not record.proof.ok:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.proof.when))
        return PinStatus(
            pin, "unproven", f"its program launched another config on {when}{_AGAIN_BY}"
        )
    if why := why_stale(record, 0):
        return PinStatus(pin, "unproven", f"{why}; `rocm-tui verify -- CMD`")
    return PinStatus(pin, "active")


_AGAIN_BY = "; `rocm-tui verify -- CMD` looks again"
UNSEEN = "no program was seen to take it; `rocm-tui verify -- CMD` runs one"
"""For a pin of a Triton kernel, which only its own program can call."""
NO_FILE = "it holds under `rocm-tui run`; stock PyTorch has no file for it"
TUNED_OVER = "a program of stock PyTorch tuned over it ({}); it holds under `rocm-tui run`"
"""For a kernel of Inductor's."""


def _compiled_anew(hash: str, names: Iterable[str]) -> bool:
    """Return whether the same kernel of ours was timed later with another toolchain: new times
    follow older ones in the file."""
    later = itertools.dropwhile(hash.__ne__, names)
    return is_own(hash) and any(
        name != hash and any_toolchain(name) == any_toolchain(hash) for name in later
    )


def _line(doubt: GraphDoubt) -> str:
    """Return the line of one doubt: the number of graphs, why, where, and what to do."""
    many = len(doubt.paths) > 1
    words = {"it": "them" if many else "it"}
    words |= {"calls": "call", "keeps": "keep"} if many else {"calls": "calls", "keeps": "keeps"}
    where = brief(doubt.paths[0], 60) + (f" and {len(doubt.paths) - 1} more" if many else "")
    what = counted(len(doubt.paths), "compiled graph")
    return f"{what} {doubt.why.format(**words)} ({where}); {doubt.todo.format(**words)}"


def numbers_of(record: PinRecord) -> str:
    """Return a digest of the times of a pinned tuning."""
    return hashlib.sha256(json.dumps(record.tokens, sort_keys=True).encode()).hexdigest()[:16]


def why_stale(record: PinRecord, since: int) -> str:
    """Return why a proof may be outdated, or an empty string. `record` has the current numbers;
    `since` graphs with the op have appeared after the proof."""
    proof = record.proof
    if proof is None:
        return ""
    if record.drifts > proof.drifts:
        return "it drifted since"
    if numbers_of(record) != proof.numbers:
        return "it was tuned again since"
    graphs = counted(since, "graph was", "graphs were")
    return f"{graphs} compiled since" if since else ""
