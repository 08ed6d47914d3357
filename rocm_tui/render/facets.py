"""Columns for what tells rows apart: tuner, device, layout, rank, source, each where it differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rocm_tui.harmless import plain
from rocm_tui.render.table import Field
from rocm_tui.session import grouping
from rocm_tui.session.in_use import device_name
from rocm_tui.session.model import Row

DEVICE: Field[Row] = Field(
    "device", "DEVICE", 6, 22, drop=4, good=8, style="dim", text=lambda row: plain(row.device),
    about="where it was tuned; shown if several are known",
)  # fmt: skip
DEVICES: Field[Row] = Field(
    "devices", "DEVICES", 6, 12, drop=3, style="dim", text=lambda row: plain(device_name(row)),
    about="of this box that tuned it; the numbers are the first one's",
)  # fmt: skip
LAYOUT: Field[Row] = Field(
    "layout", "LAYOUT", 6, 6, drop=2, style="dim",
    text=lambda row: row.layout,
    about="N by rows, T by columns, of both factors; + with gaps",
)  # fmt: skip
RANK: Field[Row] = Field(
    "rank", "RANK", 4, 4, drop=4, right=True, style="dim", text=grouping.rank_of,
    about="process of a distributed job; shown if several are known",
)  # fmt: skip
SOURCE: Field[Row] = Field(
    "source", "SOURCE", 8, 28, drop=5, style="dim", text=lambda row: source_text(row, {}),
    about="session (host and pid) or file; shown if there are several",
)  # fmt: skip
TUNER: Field[Row] = Field(
    "tuner", "TUNER", 8, 12, drop=3, style="accent",
    text=lambda row: plain(grouping.tuner_of(row)) or "inductor",
    about="whose table has it; shown if not all are Inductor's",
)  # fmt: skip
FACETS: tuple[Field[Row], ...] = (TUNER, DEVICE, DEVICES, LAYOUT, RANK, SOURCE)
KEYS = frozenset(field.key for field in FACETS)


def source_text(row: Row, names: Mapping[str, str]) -> str:
    """By one of `names`, else in full."""
    source = grouping.source_of(row)
    return plain(names.get(source, source))


def shown(
    rows: Sequence[Row],
    differing: Callable[[Sequence[Row]], tuple[str, ...]] = grouping.differing,
    named: Callable[[Sequence[Row]], Mapping[str, str]] | None = None,
) -> tuple[dict[str, Field[Row]], Mapping[str, str]]:
    """The columns that differ among these rows, by key; and short names of their sources.
    `differing` and `named` may remember what they said of rows."""
    keys = differing(rows)
    names = (named or grouping.SourceNames().of)(rows) if "source" in keys else {}
    return {field.key: field for field in FACETS if field.key in keys}, names
