"""Inductor's persistent autotune cache: each (op, inputs, precision) is a tuning that was done."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from backend.cache.autotune import parse_cache
from backend.errors import CacheUnreadable, InputsKeyInvalid
from backend.model.choice import Choice, sort_choices
from backend.model.origin import kind_of
from backend.model.problem import InputsKey, TuningKey, parse_inputs_key
from backend.model.session import Fault
from backend.model.tuning import Tuning
from rocm_tui.harmless import clean
from rocm_tui.ingest.devices import DeviceEntry, hashes_below
from rocm_tui.ingest.formats.reader import (
    DOCUMENTS,
    Format,
    NotReadable,
    clean_hash,
    timed_choice,
)
from rocm_tui.ingest.records import Record, Seen


def parse(data: bytes, source: str) -> list[Record]:
    """All tunings of a cache file. Raises NotReadable."""
    try:
        file = parse_cache(Path(source), data)
    except CacheUnreadable as error:
        raise NotReadable(clean(str(error))) from error
    records: list[Record] = []
    hashes = hashes_below(Path(source).parent.parent, file.entries.values())
    for key, timings in file.entries.items():
        texts = (key.op, key.inputs, key.precision, *timings)
        if not (all(map(str.isprintable, texts)) or _are_clean(key, timings)):
            records.append(Fault(source, f"a key of {clean(key.op)[:60]} has control characters"))
            continue
        entries = [DeviceEntry(None, timings)] if hashes is None else hashes.entries(timings)
        for nth, entry in enumerate(entries):
            tuning = _tuning(key, entry, source, file.untimed.get(key, ()) if not nth else ())
            # The first keeps the place that the entry had before another device tuned it.
            place = f":{entry.index}" if nth else ""
            records.append(Seen(f"{_uid(source, key)}{place}", tuning))
    records.extend(Fault(source, clean(problem.what)) for problem in file.problems)
    return records


def _are_clean(key: TuningKey, hashes: Iterable[str]) -> bool:
    names = (key.op, key.inputs, key.precision)
    return all(clean(name) == name for name in names if not name.isprintable()) and all(
        clean_hash(name) == name for name in hashes
    )


def _uid(source: str, key: TuningKey) -> str:
    """By its key: new keys may be written before it."""
    text = "\n".join((key.op, key.inputs, key.precision))
    return f"{source}#{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _tuning(key: TuningKey, entry: DeviceEntry, source: str, untimed: Iterable[str]) -> Tuning:
    try:
        inputs = parse_inputs_key(key.inputs)
    except InputsKeyInvalid:
        inputs = InputsKey(())
    behind = [Choice(hash=name) for name in untimed if clean_hash(name) == name]
    choices = _offered([*_choices(entry), *behind])
    return Tuning(
        op=key.op,
        shapes=tuple(spec.sizes for spec in inputs.specs),
        strides=tuple(spec.strides for spec in inputs.specs),
        dtypes=tuple(spec.dtype for spec in inputs.specs),
        device=inputs.specs[0].device if inputs.specs else None,
        precision=key.precision,
        inputs_key=key.inputs,
        choices=choices,
        num_choices=sum(choice.offered for choice in choices),
        sources=(source,),
        device_index=entry.index,
    )


def _choices(entry: DeviceEntry) -> list[Choice]:
    choices = [timed_choice(ms, hash=name) for name, ms in entry.timings.items()]
    if entry.index is None:
        return choices
    return [
        replace(
            choice,
            identity=entry.identities.get(choice.hash or ""),
            shared=choice.hash in entry.shared,
            offered=choice.hash not in entry.unplaced,
        )
        for choice in choices
    ]


def _offered(choices: list[Choice]) -> tuple[Choice, ...]:
    """Return the choices of an entry, fastest first, with what was offered beside the fastest. The
    entry has those of every program with its key; one program offers at most one C++ template."""
    ranked = sort_choices(choices)
    if not ranked or ranked[0].failed or not _is_cpp(ranked[0]):
        return ranked
    return sort_choices([ranked[0], *(replace(c, offered=not _is_cpp(c)) for c in ranked[1:])])


def _is_cpp(choice: Choice) -> bool:
    return kind_of(choice.hash or "") == "cpp"


FORMAT = Format(
    "autotune cache",
    begins=re.compile(rb'\{\s*"(?:system|cache)"\s*:\s*\{'),
    place=re.compile(r"(?:\A|/)cache/[0-9a-f]{64}\Z"),
    suffixes=DOCUMENTS,
    document=parse,
)
