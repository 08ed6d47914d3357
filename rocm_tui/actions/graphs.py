"""The compiled graphs that are known, and the text of one that was captured."""

from __future__ import annotations

from collections.abc import Sequence

from backend.disk.layout import Layout
from rocm_tui.actions.pick import load_model
from rocm_tui.session.graph_rows import GraphRow, graph_rows


def known_graphs(layout: Layout, sources: Sequence[str] = ()) -> list[GraphRow]:
    """All graphs that the cache dir and `sources` tell of, longest share first."""
    return graph_rows(load_model(layout, also=sources), layout)
