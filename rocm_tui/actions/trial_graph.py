"""The graph that a trial is about: which one a person means, its text, whether it may be run, and
the private caches in which it is.

A captured graph is a program. A person sees it before it runs for the first time; what they agreed
to is kept as the hash of its text, in a file that nobody else can write.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.cache.copies import copy_unpinned
from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import CacheUnreadable, StoreError
from rocm_tui.errors import RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.session.graph_rows import GraphRow, find_graph
from rocm_tui.session.model import Row
from rocm_tui.session.refusals import TRIED, why_not_alone, why_not_tried

CAPTURE = "run it with `rocm-tui run --capture -- ...` first"
MOST_TEXT = 32 << 20
"""Bytes of a graph's text. A model of thousands of ops has some hundred KiB."""
MOST_ACCEPTED = 1000


class NotTried(RocmTuiError):
    """No trial was made; one line says why."""


@dataclass(frozen=True, slots=True)
class GraphText:
    """The text of a captured graph, where it lies, and the hash that a person agrees to."""

    graph: str
    path: Path
    data: bytes

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def lines(self) -> list[str]:
        """Made harmless."""
        return [plain(line) for line in self.data.decode(errors="replace").splitlines()]

    @property
    def body(self) -> list[str]:
        """What the graph computes: the lines from its `forward` on, but for blank ones."""
        lines = [line for line in self.lines if line.strip()]
        at = next((at for at, line in enumerate(lines) if "def forward(" in line), 0)
        return lines[at:]


def graph_for(row: Row, graphs: Sequence[GraphRow], wanted: str | None = None) -> GraphRow:
    """The captured graph in which the program spends most time on the tuning, or that whose id is
    or begins with `wanted`. Raises NotTried and NoSuchGraph."""
    key = row.tuning.key
    if key is None:
        raise NotTried(why_not_tried(row.tuning) or "")
    if (alone := why_not_alone(row.tuning, TRIED)) is not None:
        raise NotTried(alone)
    if wanted is not None:
        graphs = [find_graph(graphs, wanted)]
    holding = [graph for graph in graphs if key in graph.tunings]
    if not holding and wanted is not None:
        raise NotTried(f"graph {graphs[0].id} does not contain tuning {row.id}")
    if not holding:
        raise NotTried(f"no graph is known that contains tuning {row.id}: {CAPTURE}")
    kept = [graph for graph in holding if graph.path is not None]
    if not kept:
        why = next((graph.graph.uncaptured for graph in holding if graph.graph.uncaptured), "")
        reason = f"could not be captured: {plain(why)}" if why else f"is not captured: {CAPTURE}"
        raise NotTried(f"graph {holding[0].id}, which contains tuning {row.id}, {reason}")
    return max(kept, key=lambda graph: (graph.share or 0.0) * (graph.tunings[key].share or 0.0))


def text_of(layout: Layout, graph: str) -> GraphText:
    """Raises NotTried where it is not kept any more, or is no file to read."""
    if not (graph.isascii() and graph.isalnum()):
        raise NotTried(f"{plain(graph)!r} is no id of a graph")
    path = layout.graphs / f"{graph}.py"
    try:
        with safe.open_regular(path) as stream:
            data = stream.read(MOST_TEXT + 1)
    except FileNotFoundError as error:
        raise NotTried(f"the text of graph {graph} is not kept: {CAPTURE}") from error
    except OSError as error:
        raise NotTried(f"cannot read {path}: {error.strerror or error}") from error
    if len(data) > MOST_TEXT:
        raise NotTried(f"{path} has more than {MOST_TEXT >> 20} MiB, which is no graph's text")
    return GraphText(graph, path, data)


def accepted_path(layout: Layout) -> Path:
    return layout.graphs / "accepted.json"


def is_accepted(layout: Layout, text: GraphText) -> bool:
    """Whether this person has agreed to run just this text. No, where that cannot be read or
    somebody else could have written it."""
    try:
        safe.check_file(layout.root, accepted_path(layout))
    except StoreError:
        return False
    return text.digest in _accepted(layout)


def accept(layout: Layout, text: GraphText) -> None:
    """Remember that a person agreed to run it. Raises StoreErrors."""
    path = accepted_path(layout)
    safe.make_folder(layout.root, path.parent)
    safe.check_file(layout.root, path)
    with safe.locked(layout.root, path):
        known = {**_accepted(layout), text.digest: time.time()}
        newest = sorted(known, key=lambda digest: known[digest])[-MOST_ACCEPTED:]
        document = {"accepted": {digest: known[digest] for digest in newest}}
        safe.write_atomic(path, json.dumps(document, indent=1).encode())


def _accepted(layout: Layout) -> dict[str, float]:
    path = accepted_path(layout)
    try:
        values = safe.load_json(path, safe.read_bytes(path)).get("accepted")
    except CacheUnreadable:
        return {}
    if not isinstance(values, dict):
        return {}
    return {digest: float(w) for digest, w in values.items() if isinstance(w, (int, float))}


def private_cache(layout: Layout) -> Layout:
    """Where trials are made: the autotune caches of `layout` without pins, and none of its compiled
    graphs. Made, or brought up to date; nothing of the person's changes. Raises StoreErrors."""
    private = Layout(layout.trials)
    copy_unpinned(layout, private)
    return private
