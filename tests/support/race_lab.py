"""A process that writes the cache file as stock PyTorch does, without a lock."""

from __future__ import annotations

import subprocess

from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from tests.support.torch_models import child_env
from tests.support.warm_python import warm_python

WRITER = """
import itertools, os, select, sys, time
from torch._inductor.codecache import PersistentCache
class Choice:
    def __init__(self, name):
        self.name = name
    def hash_key(self):
        return self.name
cache = PersistentCache()
choices = [Choice(f"c{i}") for i in range(10)]
def benchmark(choices):
    time.sleep(0.003)
    return {choice: 0.5 + i for i, choice in enumerate(choices)}
def tune(op, inputs):
    cache.lookup(choices, op, inputs, benchmark)
tune("mm", "[pinned]")
print("ready", flush=True)
os.read(0, 1)
least = int(sys.argv[2])
for i in itertools.count(1):
    time.sleep(max(0, i - least) / 1000)
    tune(sys.argv[1], f"[{i}]")
    tune("mm", "[pinned]")
    if i >= least and select.select([0], [], [], 0)[0]:
        break
print(i)
"""
"""It begins and stops at a byte of its input, so that others get as far as they need meanwhile.

The longer the file, the longer others take with it. After `least` problems it tunes ever more
slowly: otherwise others that fell behind on a busy machine would never win an exchange again.
"""

KEY = TuningKey("mm", "[pinned]", "highest")


def start(layout: Layout, op: str, least: int) -> subprocess.Popen[str]:
    """Start a process that tunes `least` problems of an op or more, and prints how many."""
    child = subprocess.Popen(
        [*warm_python(), "-c", WRITER, op, str(least)],
        env=child_env(layout.root),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    return child


def go(child: subprocess.Popen[str]) -> None:
    """Let it begin, or stop."""
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()
