"""Inductor's persistent autotune cache: each (op, inputs, precision) is a tuning that was done."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
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
from rocm_tui.ingest.formats.reader import DOCUMENTS, Format, NotReadable, timed_choice
from rocm_tui.ingest.records import Record, Seen


def parse(data: bytes, source: str) -> list[Record]:
    """All tunings of a cache file. Raises NotReadable."""
    try:
        file = parse_cache(Path(source), data)
    except CacheUnreadable as error:
        raise NotReadable(clean(str(error))) from error
    records: list[Record] = []
    for key, timings in file.entries.items():
        texts = (key.op, key.inputs, key.precision, *timings)
        if all(map(_is_clean, texts)):
            records.append(Seen(_uid(source, key), _tuning(key, timings, source)))
        else:
            records.append(Fault(source, f"a key of {clean(key.op)[:60]} has control characters"))
    records.extend(Fault(source, clean(problem.what)) for problem in file.problems)
    return records


def _is_clean(text: str) -> bool:
    return clean(text) == text


def _uid(source: str, key: TuningKey) -> str:
    """By its key: new keys may be written before it."""
    text = "\n".join((key.op, key.inputs, key.precision))
    return f"{source}#{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def _tuning(key: TuningKey, timings: Mapping[str, float], source: str) -> Tuning:
    try:
        inputs = parse_inputs_key(key.inputs)
    except InputsKeyInvalid:
        inputs = InputsKey(())
    choices = _apart([timed_choice(ms, hash=name) for name, ms in timings.items()])
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
    )


def _apart(choices: list[Choice]) -> tuple[Choice, ...]:
    """An entry has the choices of every program that asked under its key. A program offers one C++
    template at most, so beside the fastest, if it is one, the others were not put up."""
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
