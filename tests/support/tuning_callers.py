"""Processes that tune as Inductor does, with choices that are only names: through our lookup, or
through PyTorch's own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.torch_models import child_env
from tests.support.warm_python import warm_python

CALLERS = """
import sys, time
from torch._inductor.codecache import PersistentCache
class Choice:
    def __init__(self, name):
        self.name = name
    def hash_key(self):
        return self.name
def choices(count, prefix="c"):
    return [Choice(f"{prefix}{i}") for i in range(count)]
def caller(kind):
    if kind == "stock":
        return PersistentCache()
    from backend.inductor.hooks.lookup import TunedLookup
    return TunedLookup()
def tune(cache, op, inputs, offered, seconds=0.0):
    def benchmark(offered):
        time.sleep(seconds)
        return {choice: 0.5 + i for i, choice in enumerate(offered)}
    return cache.lookup(offered, op, inputs, benchmark)
"""

MANY = (
    CALLERS
    + """
kind, op, count, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
cache, offered = caller(kind), choices(20)
print("ready", flush=True)
sys.stdin.readline()
for i in range(count):
    tune(cache, op, f"[{i}]", offered, seconds)
    print(i, flush=True)
"""
)
"""Tunes `count` keys of an op of its own, and prints each one's number when it is inserted."""


def start(
    root: Path, kind: str, op: str, count: int, seconds: float = 0.0
) -> subprocess.Popen[str]:
    """A process that waits for `go`."""
    return subprocess.Popen(
        [*warm_python(), "-c", MANY, kind, op, str(count), str(seconds)],
        env=child_env(root),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def go(child: subprocess.Popen[str]) -> None:
    """Let it run, once it is ready."""
    assert child.stdout is not None and child.stdin is not None
    assert child.stdout.readline() == "ready\n"
    child.stdin.write("\n")
    child.stdin.flush()


def run(root: Path, program: str) -> str:
    """What a program that begins with `CALLERS` prints."""
    done = subprocess.run(
        [*warm_python(), "-c", CALLERS + program],
        env=child_env(root),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
