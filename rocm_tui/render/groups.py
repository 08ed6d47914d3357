"""The lines of a list of tunings that stand for several rows: headings, and what is folded."""

from __future__ import annotations

from collections.abc import Mapping

from backend.counted import counted
from rocm_tui.harmless import plain
from rocm_tui.render.shares import SIGNS
from rocm_tui.render.table import Line, Span
from rocm_tui.session import numbers as fmt
from rocm_tui.session.grouping import Folded, Heading, Sums, sums

_UNKNOWN = {"device": "device not known", "session": "session not known", "op": "op not known"}


def heading_line(heading: Heading, by: str, names: Mapping[str, str]) -> Line:
    """`▾ mm  12 tunings · 3 pinned · 2 of 4 measured faster than ATen · tuning took 14 s`; `names`
    are those of sources."""
    name = plain(names.get(heading.group, heading.group)) or _UNKNOWN[by]
    spans: list[Span] = [("▾ " if heading.open else "▸ ", "accent"), (name, "strong")]
    facts = _facts(sums(heading.rows), heading)
    return (*spans, ("  " + " · ".join(facts), "dim"))


def _facts(known: Sums, heading: Heading) -> list[str]:
    facts = [counted(known.tunings, "tuning")] if known.tunings or not known.entries else []
    facts += [counted(known.entries, "entry of a table", "entries of tables")] * bool(known.entries)
    facts += [f"{known.running:,} running"] if known.running else []
    facts += [f"{known.pinned:,} pinned"] if known.pinned else []
    if known.measured:
        facts.append(f"{known.faster:,} of {known.measured:,} measured faster than ATen")
    facts += [f"tuning took {fmt.seconds(known.seconds)}"] if known.seconds else []
    facts += (
        [f"{SIGNS[known.told]}{fmt.percent(known.share)} of the graphs' time"]
        if known.share
        else []
    )
    return facts


def folded_line(folded: Folded) -> Line:
    """`32 with a single choice (f)`."""
    return ((f"▸ {len(folded.rows)} with a single choice (f)", "dim"),)
