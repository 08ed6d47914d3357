"""Ray clusters on this machine: nodes that believe to have GPUs, in a folder of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OBJECTS = 80 << 20


@contextlib.contextmanager
def ray_cluster(nodes: int, gpus: int) -> Iterator[Any]:
    """So many nodes with so many logical GPUs each, as a `ray.cluster_utils.Cluster`."""
    from ray.cluster_utils import Cluster  # heavy

    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # sockets: a path has to be short
    with _variable("RAY_TMPDIR", folder):
        cluster = Cluster()
        try:
            for number in range(nodes):
                add_node(cluster, gpus, head=number == 0)
            yield cluster
        finally:
            cluster.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


def add_node(cluster: Any, gpus: int, head: bool = False) -> Any:
    words = {"include_dashboard": False, "include_log_monitor": False} if head else {}
    Path(os.environ["RAY_TMPDIR"], "ray").mkdir(exist_ok=True)
    return cluster.add_node(num_cpus=0, num_gpus=gpus, object_store_memory=OBJECTS, **words)


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})
