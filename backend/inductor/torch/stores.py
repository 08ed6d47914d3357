"""Private names of torch: the store of the default process group.

Read in torch 2.13 (`torch/distributed/distributed_c10d.py`).
"""

from __future__ import annotations

from typing import Any


def default_store() -> tuple[str, int] | None:
    """Host and port of the server; None before there is a group, or where its store has none."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return None
    store: Any = dist.distributed_c10d._get_default_store()
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return (store.host, store.port) if isinstance(store, dist.TCPStore) else None
