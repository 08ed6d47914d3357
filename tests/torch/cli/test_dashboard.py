"""The dashboard in a real terminal, beside a real torch.compile."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.terminal_lab import WATCH, Terminal, ended, needs_tmux
from tests.support.torch_models import child_env, compiled

pytestmark = [*needs_tmux, pytest.mark.torch]


def test_a_tuning_beside_it_appears_and_is_pinned(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with Terminal([*WATCH, "--cache-dir", str(cache)], (120, 36)) as terminal:
        terminal.wait_for("No tuning yet.")
        first = compiled(["bmm"], cache).code["bmm"]
        terminal.wait_for("1 tuning")
        compiled(["small_bmm"], cache)
        screen = terminal.wait_for("2 tunings", "4×32×96×64", "8×128×192×256")
        assert screen.index("4×32×96×64") < screen.index("8×128×192×256")  # newest first
        terminal.press("G")
        terminal.press("Tab")
        terminal.press("j")
        terminal.press("p")
        terminal.wait_for("raised out of reach")
        terminal.press("Enter")
        terminal.wait_for("active")
        pins = json.loads((cache / "rocm_tui" / "pins.json").read_text())
        assert len(pins["pins"]) == 1
        second = compiled(["bmm"], cache).code["bmm"]
        assert ("extern_kernels.bmm(" in first) != ("extern_kernels.bmm(" in second)
        pid = terminal.pid
        terminal.press("q")
        assert ended(pid)


def test_the_demo_is_live_and_leaves_nothing(tmp_path: Path) -> None:
    cache = tmp_path / "demo"
    demo = f"{sys.executable} -m rocm_tui demo --cache-dir {cache}"
    with Terminal(["sh", "-c", f"{demo}; read line"], (120, 36)) as terminal:
        terminal.wait_for("No tuning yet.")
        terminal.wait_for("8×128×128×32")
        pid = terminal.pid
        assert descendants(cache)
        terminal.press("q")
        terminal.wait_for("Stop it  s")
        terminal.press("s")
        screen = terminal.wait_for("record your own program")
        assert screen.index("first tunings appear within a minute") < screen.index("What to try:")
        assert f"rocm-tui ls --cache-dir {cache}" in screen and "rocm-tui measure " in screen
        terminal.wait_until(lambda: not descendants(cache), "the demo's processes end")
        terminal.press("Enter")
        assert ended(pid)
    assert not [
        p for p in (cache / "rocm_tui" / "sessions").iterdir() if b"NumPy" in p.read_bytes()
    ]
    logs = list((cache / "rocm_tui" / "sessions").glob("*.jsonl"))
    assert len([log for log in logs if not log.name.endswith(".run.jsonl")]) == 1


def descendants(cache: Path) -> list[int]:
    """Processes that were started for this cache dir."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        words = " ".join(process.info["cmdline"] or [])
        environ = process.info["environ"] or {}
        if "backend.demo" in words and (
            str(cache) in words or environ.get("TORCHINDUCTOR_CACHE_DIR") == str(cache)
        ):
            found.append(process.pid)
    return found


def test_two_screens_and_a_second_pinner_agree(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    compiled(["bmm"], cache)
    watch = [*WATCH, "--cache-dir", str(cache)]
    with Terminal(watch, (100, 30)) as one, Terminal(watch, (80, 24)) as two:
        one.wait_for("1 tuning")
        two.wait_for("1 tuning")
        words = [sys.executable, "-m", "rocm_tui"]
        listed = subprocess.run(
            [*words, "ls", "--json"], env=child_env(cache), capture_output=True, check=True
        )
        id_ = json.loads(listed.stdout)["tunings"][0]["id"]
        subprocess.run([*words, "pin", id_, "#2"], env=child_env(cache), check=True)
        for terminal in (one, two):
            terminal.wait_for("active")
        subprocess.run([*words, "unpin", id_], env=child_env(cache), check=True)
        for terminal in (one, two):
            terminal.wait_for("active", gone=True)
            terminal.press("q")
            assert ended(terminal.pid) or terminal.status == 0
