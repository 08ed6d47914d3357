"""How a far source is reached, in words."""

from __future__ import annotations

from rocm_tui.ingest.records import LinkSeen


def away_text(link: LinkSeen, now: float) -> str:
    """`lost 12 s ago, retrying in 4 s`; empty of one that is followed. `now` is Unix time."""
    if link.state == "following":
        return ""
    lost = f"lost {_span(now - link.when)} ago" if link.reached else "not reached"
    if link.state == "connecting":
        return f"{lost}, connecting" if link.reached or link.why else "connecting"
    return lost if link.retry is None else f"{lost}, retrying in {_span(link.retry - now)}"


def _span(seconds: float) -> str:
    whole = max(0, round(seconds))
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 7200 else f"{whole // 3600} h"
