"""Calls and shares of a tuning: columns, a line, JSON."""

from __future__ import annotations

from backend.counted import counted
from rocm_tui.harmless import plain
from rocm_tui.render.table import Field, Line, Span
from rocm_tui.session import numbers as fmt
from rocm_tui.session.graphs import Share, SharePart

SIGNS = {"seen": "", "measured": "~", "once": "~"}
"""The mark of a share, by how it is known: only what a profiler saw in the program is
measured there. The time of a kernel alone, measured or not, says about what it takes in a graph."""


_LEAST = 0.0005
"""The smallest part that one decimal of a percentage shows."""


def _known(share: Share | None) -> bool:
    """Whether its share was seen in the program."""
    return share is not None and share.basis == "seen"


def share_text(share: Share | None) -> str:
    """`12.3 %`; `~12.3 %` by the time of the kernel alone."""
    if share is None or share.share is None:
        return fmt.NONE if share else ""
    return _part_of_time(share.share, SIGNS[share.basis])


def _part_of_time(part: float, sign: str) -> str:
    """A small part is not none: `<0.1 %`."""
    return f"{sign}{fmt.percent(part)}" if not 0 < part < _LEAST else f"{sign}<0.1 %"


def _gain(share: Share | None) -> str:
    if share is None or share.to_gain is None:
        return fmt.NONE if share else ""
    if share.gain == 0:
        return fmt.percent(0.0)  # of whatever share
    sign = SIGNS[share.basis]
    return ("≤" if share.gain is None else "") + _part_of_time(share.to_gain, sign)


SHARES: tuple[Field[Share | None], ...] = (
    Field(
        "calls", "CALLS", 6, 6, drop=8, right=True, style="dim",
        text=lambda share: fmt.count(share.calls) if share else "",
        short=lambda share: fmt.narrow_count(share.calls) if share else "",
        about="calls of its choice by the latest program's compiled graphs",
    ),
    Field(
        "share", "SHARE", 7, 7, drop=4, right=True, text=share_text,
        style=lambda share: "" if _known(share) else "dim",
        about="of the program's time in graphs; ~ by kernels alone",
    ),
    Field(
        "to_gain", "TO GAIN", 8, 8, drop=6, right=True, name="to gain", text=_gain,
        style=lambda share: "good" if share and share.gain else "dim",
        about="time the best measured choice saves; ≤ at most; ~ as SHARE",
    ),
)  # fmt: skip


def share_line(share: Share | None) -> Line | None:
    """`60.1 % of the graphs' time in llama.py · 4× in b3f21aa: 800 calls, 75 % of its time`."""
    if share is None or not share.parts:
        return None
    count = len(share.parts)
    text = share_text(share)
    spans: list[Span] = [(" ", "")]
    if share.share is not None:
        spans.append((text, "strong" if _known(share) else ""))
        spans.append((f" of the graphs' time in {plain(share.program)}", ""))
    else:
        spans.append((f"In {counted(count, 'graph')} of {plain(share.program)}", ""))
    spans += [(f" · {_part(part, SIGNS[share.basis])}", "dim") for part in share.parts]
    return tuple(spans)


def _part(part: SharePart, sign: str) -> str:
    """`sign` is that of all parts together: how the most doubtful is known."""
    of = f", {sign}{fmt.percent(part.share)} of its time" if part.share is not None else ""
    return f"{part.count:,}× in {part.graph}: {counted(part.calls, 'call')}{of}"
