"""What loading a mega-cache would do to the pins and to what lies in the cache dir."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from backend.model.pin import Pin
from backend.store.bundle import Artifact, Bundle
from backend.store.graph_match import Verdict, judge, may_hold
from backend.store.graph_text import read_graph_text
from backend.store.paths import Layout
from backend.store.pin_file import read_pin_file
from backend.store.pin_graphs import GraphSweeper

_MAX_CONFIG = 1 << 20


@dataclass(frozen=True, slots=True)
class Hiding:
    """A graph that hides a pin once it is loaded: its code calls another choice (`other`), or the
    text does not tell which one (`unknown`, `unclear`)."""

    pin: Pin
    artifact: Artifact
    verdict: Verdict


def hidden_pins(bundle: Bundle, layout: Layout) -> list[Hiding]:
    """Raises BundleInvalid, and what reading the pins raises."""
    sweeper = GraphSweeper(layout)
    pairs = [(record.pin, sweeper.wanted(record)) for record in read_pin_file(layout.pins).pins]
    pins = [(pin, wanted) for pin, wanted in pairs if wanted is not None]
    graphs = [a for a in bundle.artifacts if a.is_graph and a.loaded] if pins else []
    found: list[Hiding] = []
    for artifact, data in bundle.contents(graphs):
        concerned = [(pin, wanted) for pin, wanted in pins if may_hold(data, wanted)]
        if not concerned:
            continue
        text = read_graph_text(data)
        for pin, wanted in concerned:
            verdict = judge(text, wanted)
            if verdict not in ("absent", "same"):
                found.append(Hiding(pin, artifact, verdict))
    return found


Overwriting = Literal["new", "same", "other"]
"""A configuration that is not in the cache dir, is there, or is there with another content."""


def configurations(bundle: Bundle, layout: Layout) -> Iterator[tuple[Artifact, Overwriting]]:
    """What becomes of each `.best_config` in the bundle. Raises BundleInvalid."""
    chosen = [a for a in bundle.artifacts if a.is_config and a.loaded and not a.leads_out]
    for artifact, data in bundle.contents([a for a in chosen if a.size <= _MAX_CONFIG]):
        there = _content(layout.root / artifact.key)
        yield artifact, "new" if there is None else "same" if there == data else "other"


def _content(path: Path) -> bytes | None:
    with contextlib.suppress(OSError):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), "rb") as stream:
            if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                return stream.read(_MAX_CONFIG + 1)
    return None
