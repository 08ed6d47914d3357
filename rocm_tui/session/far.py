"""Tunings that another host alone tells of, and how such hosts are reached."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from backend.counted import counted
from rocm_tui.harmless import plain
from rocm_tui.ingest.far.words import away_text
from rocm_tui.ssh.address import host_of, is_far

if TYPE_CHECKING:
    from backend.model.session import Session
    from backend.model.tuning import Tuning
    from rocm_tui.ingest.records import LinkSeen

_MOST = 1
"""Hosts that a title names."""
_FOLDERS = ("/cache/", "/rocm_tui/sessions/")
"""Where sources lie below a cache dir."""


def far_host(tuning: Tuning) -> str:
    """Its host, where no source of this machine tells of it; else empty."""
    sources = tuning.sources
    return host_of(sources[0]) if sources and all(map(is_far, sources)) else ""


def cache_dir_of(tuning: Tuning, sessions: Mapping[str, Session]) -> str:
    """The cache dir `ssh://host/path` of a far tuning; empty where nothing tells."""
    for source in tuning.sources:
        for folder in _FOLDERS:
            root, found, _ = source.rpartition(folder)
            if found:
                return root
    session = sessions.get(tuning.session or "")
    return session.cache_dir if session is not None and is_far(session.cache_dir) else ""


def away(links: Collection[LinkSeen], now: float) -> str:
    """Which far sources are not followed: `gpu1: lost 12 s ago, retrying in 4 s`. `now` is Unix
    time."""
    away = [link for link in links if link.state != "following"]
    if len(away) > _MOST:
        return f"{counted(len(away), 'host')} of {len(links)} away (S)"
    return ", ".join([f"{plain(host_of(link.source))}: {away_text(link, now)}" for link in away])
