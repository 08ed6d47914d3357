"""Graphs that may call our kernels have keys of their own; a program's own tag stays in them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.torch_models import child_env
from tests.support.warm_python import warm_python

PROGRAM = """
import threading, torch, torch.compiler.config as config
from torch._dynamo.utils import counters
from backend.inductor.hooks.environment import separate_graphs

def in_thread(action):
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()
def show():
    tag = config.cache_key_tag
    print(tag.partition("rocm-tui")[0], tag.count("rocm-tui-templates-"))
def compiled():
    torch._dynamo.reset()
    counters.clear()
    torch.compile(lambda a: a + 3)(torch.ones(8))
    print(dict(counters["inductor"])["fxgraph_cache_miss"] == 1)

compiled()
config.cache_key_tag = "mine-"
separate_graphs()
separate_graphs()
show()
config.cache_key_tag = "later-"
show()
with config.patch(cache_key_tag="patched-"):
    show()
config.cache_key_tag += "more"
show()
config.cache_key_tag = ""
in_thread(show)
in_thread(compiled)  # as before, but for our tag
"""


@pytest.mark.torch
def test_a_program_keeps_its_own_tag_whenever_it_sets_it(tmp_path: Path) -> None:
    done = subprocess.run(
        [*warm_python(), "-c", PROGRAM],
        env=child_env(tmp_path / "cache"),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines() == [
        *("True", "mine- 1", "later- 1", "patched- 1", "later- 1"),
        *(" 1", "True"),
    ]
