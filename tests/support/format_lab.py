"""Cache files and event logs of hand-made lines."""

from __future__ import annotations

import json

import pytest

from backend.model.choice import Choice
from backend.model.events import Event, TuningStarted
from backend.model.session import Fault
from backend.model.tuning import Tuning
from backend.wire.events import encode
from rocm_tui.ingest.records import Dropped, Record, Seen
from tests.support.places import CORPUS

KEY = "[('cpu', 'torch.float32', 2, 3, 3, 1, 0), ('cpu', 'torch.float32', 3, 4, 4, 1, 0)]"


def cache_text(entries: object) -> bytes:
    return json.dumps({"system": {"hash": "x"}, "cache": entries}).encode()


STARTED = TuningStarted(
    n=1,
    when=100.0,
    op="mm",
    inputs=KEY,
    precision="highest",
    shapes=((2, 3), (3, 4)),
    strides=((3, 1), (4, 1)),
    dtypes=("torch.float32", "torch.float32"),
    device="cpu",
    choices=tuple(Choice(name=name, hash=f"{name}-h") for name in "abc"),
)


def lines(*events: Event) -> bytes:
    return "".join(encode(event) + "\n" for event in events).encode()


needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")


def tunings(records: list[Record]) -> dict[str, Tuning]:
    found: dict[str, Tuning] = {}
    for record in records:
        if isinstance(record, Seen):
            found[record.uid] = record.tuning
        elif isinstance(record, Dropped):
            del found[record.uid]
    return found


def problems(records: list[Record]) -> list[str]:
    return [record.what for record in records if isinstance(record, Fault)]
