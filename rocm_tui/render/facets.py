"""Columns for what tells rows apart: device, layout, rank and source, each where it differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rocm_tui.harmless import plain
from rocm_tui.render.table import Field
from rocm_tui.session import facets
from rocm_tui.session.model import Row
from rocm_tui.session.named import short_names

DEVICE: Field[Row] = Field(
    "device", "DEVICE", 6, 22, drop=4, good=8, style="dim", text=lambda row: plain(row.device),
    about="where it was tuned; shown if several are known",
)  # fmt: skip
LAYOUT: Field[Row] = Field(
    "layout", "LAYOUT", 6, 6, drop=2, style="dim",
    text=lambda row: facets.layout_of(row.tuning),
    about="N by rows, T by columns, of both factors; + with gaps",
)  # fmt: skip
RANK: Field[Row] = Field(
    "rank", "RANK", 4, 4, drop=4, right=True, style="dim", text=facets.rank_of,
    about="process of a distributed job; shown if several are known",
)  # fmt: skip
SOURCE: Field[Row] = Field(
    "source", "SOURCE", 8, 28, drop=5, style="dim", text=lambda row: source_text(row, {}),
    about="session (host and pid) or file; shown if there are several",
)  # fmt: skip
FACETS: tuple[Field[Row], ...] = (DEVICE, LAYOUT, RANK, SOURCE)
KEYS = frozenset(field.key for field in FACETS)


def source_text(row: Row, names: Mapping[str, str]) -> str:
    """By one of `names`, else in full."""
    source = facets.source_of(row)
    return plain(names.get(source, source))


def shown(
    rows: Sequence[Row], layout: Callable[[Row], str] = LAYOUT.text
) -> tuple[dict[str, Field[Row]], Mapping[str, str]]:
    """The columns that differ among these rows, by key; and short names of their sources.
    `layout` may remember what it says of rows."""
    keys = facets.differing(rows, layout)
    names = short_names(map(facets.source_of, rows)) if "source" in keys else {}
    return {field.key: field for field in FACETS if field.key in keys}, names
