"""Keeping the text of graphs as they are compiled, for trials: `hooks/graphs.py` calls these two
where `ROCM_TUI_CAPTURE` is set, each behind a guard of its own.

Inductor changes a graph while it compiles it, so what is needed of it is taken before; only then is
its id known.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import CacheUnreadable, StoreError
from backend.inductor.guard import shielded
from backend.inductor.hooks.environment import home
from backend.inductor.torch import captured
from backend.wire.captured import MOST_BYTES

PATIENCE = 5.0
"""Seconds that a program waits while another one writes a graph."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """The text of a graph, or why there is none."""

    text: str = ""
    why_not: str = ""


_local = threading.local()


def install() -> None:
    """Take the text of a graph that is to be frozen before it is; its compile comes next."""

    def note(gm: Any, example_inputs: Sequence[Any]) -> None:
        frozen = captured.frozen_inputs()
        _local.frozen = _taken(gm, example_inputs, {"is_inference": True}, frozen)

    def forget() -> None:
        _local.__dict__.pop("frozen", None)

    lost = "a graph is not captured"
    captured.around_freezing(shielded(lost, note), shielded(lost, forget))


def of_compile(gm: Any, example_inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> object | None:
    """What `keep` needs of a graph that is about to be compiled, or loaded from the cache.

    `gm` is the torch.fx.GraphModule with its fake inputs, `kwargs` those of `compile_fx_inner`. It
    must change none of them, and no state of torch. None where nothing can be kept.
    """
    frozen: object | None = _local.__dict__.pop("frozen", None)
    return frozen or _taken(gm, example_inputs, kwargs)


def _taken(
    gm: Any,
    example_inputs: Sequence[Any],
    kwargs: Mapping[str, Any],
    frozen: Sequence[int] | None = None,
) -> _Taken:
    try:
        return _Taken(captured.graph_text(gm, example_inputs, kwargs, frozen=frozen))
    except captured.NotCapturable as error:
        return _Taken(why_not=str(error))


def keep(graph_id: str, taken: object) -> tuple[bool, str]:
    """Keep what was taken as the graph `graph_id`: whether that was done (`Graph.captured`), and
    why not (`Graph.uncaptured`)."""
    if not isinstance(taken, _Taken) or taken.why_not:
        return False, getattr(taken, "why_not", "")
    data = taken.text.encode()
    if len(data) > MOST_BYTES:
        return False, f"its text has {len(data) >> 20} MiB"
    try:
        _write(Layout(home.current()), f"{graph_id}.py", data)
    except StoreError as error:
        return False, str(error)
    return True, ""


def _write(layout: Layout, name: str, data: bytes) -> None:
    """A file that says the same already is left alone. Raises StoreErrors."""
    path = layout.graphs / name
    safe.make_folder(layout.root, layout.graphs)
    safe.check_file(layout.root, path)
    if _is_there(path, data):
        return
    with safe.locked(layout.root, layout.graphs / "captured", PATIENCE):
        if not _is_there(path, data):
            safe.write_atomic(path, data)


def _is_there(path: Path, data: bytes) -> bool:
    try:
        return safe.exists(path) and safe.read_bytes(path, MOST_BYTES) == data
    except CacheUnreadable:
        return False
