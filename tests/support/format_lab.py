"""Cache files and event logs of hand-made lines."""

from __future__ import annotations

import json

from backend.model.choice import Choice
from backend.model.session import Event, TuningStarted
from backend.wire.events import encode

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
