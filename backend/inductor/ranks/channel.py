"""By which way the ranks of a job meet: a folder where they are on one host or one was named, else
the store of their job."""

from __future__ import annotations

import os
from collections.abc import Mapping

from backend.disk.layout import Layout
from backend.inductor.torch import stores
from backend.ranks import job
from backend.ranks.job import Board, FolderBoard, Meeting, NoBoard

_AGENT = "TORCHELASTIC_USE_AGENT_STORE"


class NotYet(NoBoard):
    """Ranks cannot meet before there is a process group."""


def board(size: int, layout: Layout, env: Mapping[str, str] = os.environ) -> Board:
    """Where the ranks of a job of this size meet. Raises NoBoard, NotYet."""
    meeting = job.meeting(size, layout, env)
    if isinstance(meeting, Meeting):
        return FolderBoard(meeting)
    if meeting:
        raise NoBoard(meeting)
    server = agent_store(env) or stores.default_store()
    if server is None:
        why = "its ranks are on several hosts and have no store to meet in"
        raise NotYet(f"{why}; call init_process_group before, or name a folder with --agree-dir")
    from backend.inductor.ranks.store_board import StoreBoard  # a torch may lack `distributed`

    return StoreBoard(*server, env.get("TORCHELASTIC_RUN_ID", ""), job.limit(env))


def agent_store(env: Mapping[str, str]) -> tuple[str, int] | None:
    """Host and port of the store that torchrun's agent serves before any rank starts; a rank that
    is started again finds it as it was."""
    host, port = env.get("MASTER_ADDR", ""), env.get("MASTER_PORT", "")
    return (host, int(port)) if env.get(_AGENT) == "True" and host and port.isdecimal() else None
