"""What reaches stdout and stderr when these, or the folder we stand in, are broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.pins.store import PinStore
from rocm_tui.cli.entry import main
from tests.support.graph_log import write_program
from tests.support.hooked import launch
from tests.support.pin_lab import KEY, make_layout
from tests.support.torch_models import child_env

PROGRAM = f"{sys.executable} -m rocm_tui"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    layout = make_layout(tmp_path / "inductor")
    PinStore(layout).pin(None, KEY, "Cpp-c2", label="\x1b]0;owned\x07 \ud800 é", note="\x9b31m")
    return layout.root


def shell(
    script: str, cache: Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    command = ["bash", "-c", script]
    return subprocess.run(command, env=child_env(cache, env), capture_output=True, timeout=120)


@pytest.mark.parametrize("words", ["pins", "pins --json", "completion bash"])
def test_a_full_disk_behind_stdout(words: str, cache: Path) -> None:
    done = shell(f"{PROGRAM} {words} > /dev/full", cache)
    assert done.returncode == 1
    assert done.stderr == b"rocm-tui: No space left on device\n"


def test_a_reader_that_has_gone(cache: Path) -> None:
    done = shell(f"{PROGRAM} completion bash | true; exit ${{PIPESTATUS[0]}}", cache)
    assert (done.returncode, done.stderr) == (1, b"")


def test_closed_streams(cache: Path) -> None:
    assert shell(f"{PROGRAM} pins --json >&-", cache).returncode == 0
    done = shell(f"{PROGRAM} show nothing --json 2>&-", cache)
    assert done.returncode == 1 and json.loads(done.stdout)["error"]["code"] == "no-such-tuning"
    assert shell(f"{PROGRAM} show nothing 2>&-", cache).stdout == b""
    assert b"-: cannot read it" in shell(f"{PROGRAM} ls - <&-", cache).stderr


def test_a_question_to_a_closed_stdin_is_no(tmp_path: Path) -> None:
    write_program(tmp_path)
    graphs = Layout(tmp_path).graphs
    graphs.mkdir()
    (graphs / "aaaaaa1.py").write_text("import torch\n")
    done = shell(f"{PROGRAM} improve --python {sys.executable} <&-", tmp_path)
    assert b"then run it with --yes" in done.stderr and b"Traceback" not in done.stderr


def test_a_locale_without_our_letters(cache: Path) -> None:
    env = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    done = shell(f"{PROGRAM} pins", cache, env)
    assert done.returncode == 0 and done.stdout.isascii() and not done.stderr
    [pin] = json.loads(shell(f"{PROGRAM} pins --json", cache, env).stdout)["pins"]
    assert pin["label"] == "\x1b]0;owned\x07 \ud800 é"


def test_a_working_directory_that_is_gone(tmp_path: Path) -> None:
    gone = "mkdir gone; cd gone; rmdir ../gone;"
    done = shell(f"cd {tmp_path}; {gone} {PROGRAM} pins --cache-dir here", tmp_path / "cache")
    assert done.returncode == 1 and done.stderr == b"rocm-tui: No such file or directory\n"


def test_no_command_prints_what_a_terminal_would_obey(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    id_ = PinStore(Layout(cache)).pins()[0].id
    for words in (
        ["pins"],
        ["pins", "--history"],
        ["pins", "--json"],
        ["show", "\x1b[31m"],
        ["compare", "\x1b[31m"],
        ["import", "\x1b[31m"],
        ["import", "x" * 5000],
        ["compare", "x" * 5000],
        ["unpin", id_, id_],
    ):
        main([*words, "--cache-dir", str(cache)])
        captured = capsys.readouterr()
        assert not {"\x1b", "\x9b", "\x07"} & set(captured.out + captured.err), words
        assert captured.err.count("\n") <= 1, words
    assert captured.out.startswith("unpinned") and captured.out.count("\n") == 1


def test_json_where_nothing_is_pinned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--json", "--cache-dir", str(tmp_path)]) == 1
    assert json.loads(capsys.readouterr().out) == {"schema": "rocm-tui/verify/1", "pins": []}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_cache_dir_that_we_may_not_look_into(cache: Path, tmp_path: Path) -> None:
    program = (
        "import os, sys; from backend.pins.store import PinStore; from backend.disk.layout import"
        " *; from backend.errors import *; from pathlib import Path\n"
        "os.setuid(65534)\n"
        "for ask in (PinStore.status, PinStore.reconcile):\n"
        "    try: ask(PinStore(Layout(Path(sys.argv[1]))))\n"
        "    except CacheUnreadable as error: print(error)\n"
    )
    cache.chmod(0o700)
    done = subprocess.run([sys.executable, "-c", program, str(cache)], capture_output=True)
    assert done.stdout.count(b"Permission denied") == 2, done.stderr


def test_an_event_log_that_vanishes_does_not_cost_the_exit_code(tmp_path: Path) -> None:
    sessions = Layout(tmp_path / "cache").sessions
    sessions.mkdir(parents=True)
    (sessions / "gone.jsonl").symlink_to("nowhere")
    done = launch(["sh", "-c", "exit 7"], tmp_path / "cache", "--quiet")
    assert done.returncode == 7
    assert "worth a look: the program ended with exit code 7\n" in done.stderr


def test_no_letter_of_ours_becomes_the_mark_of_doubt(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text(
        "AUTOTUNE mm(64x128, 128x32)\n  mm 0.010 ms 100.0%\n  triton_mm_1 0.020 ms 50.0%\n"
        "SingleProcess AUTOTUNE benchmarking takes 0.2 seconds and 0.1 seconds precompiling "
        "for 2 choices\n"
    )
    done = shell(f"{PROGRAM} ls {log}", tmp_path, {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    text = done.stdout.decode("ascii")
    assert "64x32x128" in text and "~10.0 us" in text and "?" not in text
