"""Load the model of the sources that a person names, and find in it the tuning that they mean."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path

from backend.counted import counted
from backend.disk.layout import Layout
from backend.disk.safe import open_regular
from backend.errors import InputsKeyInvalid, StoreError
from backend.model.choice import Choice, sort_choices
from backend.model.problem import InputsKey, parse_inputs_key
from backend.model.session import CACHE_FILES, Fault
from backend.model.tuning import Tuning
from backend.pins.file import HistoryEntry
from backend.pins.store import PinStore
from backend.sharing.share import FORMAT, PinExport, SharedPin, read_share
from rocm_tui.compare.comparison import inductors, of_sessions, whole
from rocm_tui.compare.types import TuningSet
from rocm_tui.errors import NoSuchSource, NoSuchTuning
from rocm_tui.harmless import clean
from rocm_tui.ingest.follow.sources import read_sources, with_tunings
from rocm_tui.ingest.formats.reader import clean_hash
from rocm_tui.ingest.records import Seen, Unread, uid_of
from rocm_tui.session.attachments import with_torch
from rocm_tui.session.find import find_row
from rocm_tui.session.graph_rows import GraphRow, described_graphs, graph_rows
from rocm_tui.session.history import History, Versions, cache_files, history, system_versions
from rocm_tui.session.model import Model, Row
from rocm_tui.session.sessions import NoSuchSession, find_sessions, hint, required_sessions


def load_model(layout: Layout, paths: Sequence[str] = (), also: Sequence[str] = ()) -> Model:
    """Load `paths`, or the cache dir if there are none, and `also`; with the pins of the cache dir.

    The traces of a profiler hold no tunings, so the cache dir is read with them. Raises
    NoSuchSource for one of `also` that is not there or cannot be read.
    """
    model = Model()
    model.apply(read_sources([*with_tunings(paths, layout.root), *also]))
    model.apply(described_graphs(model, layout))
    require_read(model, also)
    try:
        model.set_pins(with_torch(PinStore(layout).status(), model.sessions))
    except StoreError as error:
        model.apply([Fault(str(layout.pins), str(error))])
    return model


def unread(model: Model, named: Sequence[str]) -> list[Unread]:
    """Return the problems of those `named` sources that are not there or cannot be read."""
    lost = [problem for problem in model.problems if isinstance(problem, Unread)]
    return [problem for problem in lost if problem.source in named]


def require_read(model: Model, named: Sequence[str]) -> None:
    """Raise NoSuchSource for the first named source that is not there or cannot be read."""
    for problem in unread(model, named):
        raise NoSuchSource(_fault_line(problem))


def pick_tuning(layout: Layout, also: Sequence[str], text: str) -> tuple[Model, Row]:
    """Load the cache dir and `also`; return the model and the tuning that `text` means in it.

    Raises NoSuchTuning and NoSuchSource.
    """
    model = load_model(layout, also=also)
    return model, pick_row(model, text)


def pick_row(model: Model, text: str) -> Row:
    """Return the tuning that `text` means. Raises NoSuchTuning, which names an unread source."""
    try:
        return find_row(model.listed(), text)
    except NoSuchTuning as error:
        if not model.problems:
            raise
        last = model.problems[-1].source  # what was named beside the cache dir comes last
        first = next(problem for problem in model.problems if problem.source == last)
        raise NoSuchTuning(f"{error}. Not read: {_fault_line(first)}") from error


def _fault_line(problem: Fault) -> str:
    where = problem.source if problem.line is None else f"{problem.source}:{problem.line}"
    return problem.what if where in problem.what else f"{where}: {problem.what}"


def load_named(layout: Layout, texts: Sequence[str]) -> tuple[Model, list[Row], list[str]]:
    """Load paths and sessions of the cache dir; return the model, its rows, and the paths read.

    If there are no texts, the cache dir is loaded.

    Raises NoSuchSession for one that begins several sessions, or is no path and nearly a session.
    """
    paths = [text for text in texts if text == "-" or Path(text).exists()]
    others = [text for text in texts if text not in paths]
    if not others:
        model = load_model(layout, paths)
        return model, model.listed(), paths
    root = str(layout.root)
    model = load_model(layout, [root, *paths])
    ids: set[str] = set()
    for text in others:
        matching = find_sessions(model.sessions.values(), text)
        if matching:
            ids.update(matching)
        elif near := hint(model.sessions.values(), text):
            raise NoSuchSession(f"{text!r} is no file, and no session of {root} begins so{near}")
        else:
            paths.append(text)  # whoever reads it says that it is not there
    if not ids:
        model = load_model(layout, paths)
        return model, model.listed(), paths
    rows = [row for row in model.listed() if ids.intersection(row.asked) or _within(row, paths)]
    return model, rows, [*paths, root]


def _within(row: Row, paths: Sequence[str]) -> bool:
    return any(
        source == path or source.startswith(f"{path.rstrip('/')}/")
        for device in row.devices or (row,)
        for source in device.tuning.sources
        for path in paths
    )


def known_graphs(layout: Layout, sources: Sequence[str] = ()) -> list[GraphRow]:
    """Return all graphs in the cache dir and `sources`, the largest share first."""
    return graph_rows(load_model(layout, also=sources), layout)


def read_part(
    layout: Layout, text: str, also: Sequence[str], name: str = ""
) -> tuple[TuningSet, Sequence[Fault]]:
    """Load one part of a comparison, and what could not be read.

    `text` is a source or a session of the cache dir, `name` precedes an error: `A: ` or `B: `.
    Raises NoSuchSession for a text that is neither, NoSuchSource for a source that cannot
    be read, and ShareInvalid.
    """
    if text == "-" or Path(text).exists():
        model = _load_with_exports(cache_dir_of(Path(text), layout), [text, *also])
        require_read(model, [text, *also])
        label = " + ".join([text, *also])
        part = inductors(label, model)
        if part.rows:
            return part, (*model.problems, *entries_left_out(model, label))
        return whole(label, model), model.problems  # tables alone
    model = _load_with_exports(layout, [str(layout.root), *also])
    require_read(model, also)
    try:
        ids = required_sessions(model.sessions.values(), text, str(layout.root))
    except NoSuchSession as error:
        raise NoSuchSession(f"{name}{error}") from None
    return of_sessions(text, ids, model), model.problems


def entries_left_out(model: Model, source: str) -> Iterator[Fault]:
    """Yield how many entries of other tuners' tables are beside the tunings of a model, if any."""
    count = sum(row.tuning.entry is not None for row in model.rows())
    if count:
        entries = counted(count, "entry of a tuned table", "entries of tuned tables")
        yield Fault(source, f"{entries} left out: they are no tunings of Inductor")


def _load_with_exports(layout: Layout, paths: Sequence[str]) -> Model:
    """Load paths among which are exports of pins; `load_model` takes them for no source.

    Raises ShareInvalid for an export that is damaged.
    """
    exports = [path for path in paths if path != "-" and is_export(Path(path))]
    others = [path for path in paths if path not in exports]
    model = load_model(layout, others) if others else Model()
    for path in exports:
        model.apply(tunings_of_export(read_share(Path(path)), path))
    return model


def cache_dir_of(source: Path, layout: Layout) -> Layout:
    """Return the cache dir whose pins apply to a source: its own, if it has one, or `layout`."""
    depth = {CACHE_FILES: 2, "sessions": 3}.get(source.parent.name)
    folder = source.absolute().parents[depth - 1] if depth else source
    if (folder / "cache").is_dir() or (folder / "rocm_tui").is_dir():
        return Layout(folder.absolute())
    return layout


# Exports of pins.

_HEAD = 4096
"""Bytes of a file in which an export names its format."""


def is_export(path: Path) -> bool:
    """Whether a file says that it is an export of pins."""
    try:
        with open_regular(path, follow=True) as stream:
            head = stream.read(_HEAD)
    except OSError:
        return False
    return head.lstrip()[:1] == b"{" and f'"{FORMAT}"'.encode() in head


def tunings_of_export(share: PinExport, source: str) -> list[Seen]:
    """Return a tuning for each precision of each pin, with the pinned choice in use.

    Its times are those of the pin's tuning, as they were before the pin.
    """
    tunings = [
        _tuning(pin, precision, source)
        for pin in share.pins
        for precision in pin.timings or {pin.precision: {}}
    ]
    return [Seen(uid_of(source, n), tuning) for n, tuning in enumerate(tunings)]


def _tuning(pin: SharedPin, precision: str, source: str) -> Tuning:
    try:
        inputs = parse_inputs_key(pin.inputs)
    except InputsKeyInvalid:
        inputs = InputsKey(())
    other_devices = pin.hashes - {pin.hash}
    every = pin.timings.get(precision, {})
    times = {name: ms for name, ms in every.items() if name not in other_devices}
    return Tuning(
        op=clean(pin.op),
        shapes=tuple(spec.sizes for spec in inputs.specs),
        strides=tuple(spec.strides for spec in inputs.specs),
        dtypes=tuple(spec.dtype for spec in inputs.specs),
        device=inputs.specs[0].device if inputs.specs else None,
        precision=clean(precision),
        inputs_key=clean(pin.inputs),
        choices=sort_choices([_choice(pin, name, ms) for name, ms in times.items()]),
        num_choices=len(times) or None,
        selected=clean_hash(pin.hash),
        when=pin.when or None,
        sources=(source,),
    )


def _choice(pin: SharedPin, hash_: str, ms: float) -> Choice:
    failed = not isfinite(ms)
    bare = Choice(hash=clean_hash(hash_), ms=None if failed else ms, failed=failed)
    if hash_ != pin.hash:
        return bare
    identity = clean_hash(pin.variants["0"]) if "0" in pin.variants else None
    return replace(bare, name=clean(pin.label), identity=identity)


# The history of a problem.


@dataclass(frozen=True, slots=True)
class HistoryFiles:
    """Return the parts of a history from other files: pins, and systems by their hash."""

    pins: tuple[HistoryEntry, ...] = ()
    versions: Mapping[str, Versions] = field(default_factory=dict)


_SYSTEM = re.compile(r"[0-9a-f]{64}")
"""A log may call its system anything; a cache file is named by a hash."""


def read_history_files(layout: Layout, files: Mapping[str, str]) -> HistoryFiles:
    """Read the history of pins and the systems of cache files; what cannot be read is left out.

    `files` has the path of each system's cache file; an empty path means the one in `layout`.
    """
    pins: tuple[HistoryEntry, ...] = ()
    with suppress(StoreError):
        pins = PinStore(layout).history()
    paths = {name: Path(path or layout.autotune / name) for name, path in files.items()}
    versions = {n: system_versions(path) for n, path in paths.items() if _SYSTEM.fullmatch(n)}
    return HistoryFiles(pins, versions)


def problem_history(model: Model, row: Row, layout: Layout) -> History:
    """Return the full history of the problem of `row`."""
    files = read_history_files(layout, cache_files(model, row))
    return history(model, row, files.pins, files.versions)
