"""The command line: its contract, exit codes, one-line errors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rocm_tui.cli.entry import COMMANDS
from tests.support.places import CORPUS
from tests.support.torch_models import child_env

BLOCK = """AUTOTUNE mm(64x32, 32x16)
strides: [32, 1], [16, 1]
dtypes: torch.float16, torch.float16
  triton_mm_1 0.0100 ms 100.0% BLOCK_M=16, num_warps=4
  mm 0.0200 ms 50.0% 
SingleProcess AUTOTUNE benchmarking takes 1.5000 seconds and 0.5000 seconds precompiling for 2 choices
"""  # noqa: E501, W291


def call(
    *words: str, cache: Path, stdin: bytes = b"", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "rocm_tui", *words],
        env=child_env(cache, env),
        input=stdin,
        capture_output=True,
        timeout=120,
    )


def ls(*words: str, cache: Path, stdin: bytes = b"", code: int = 0) -> dict[str, Any]:
    done = call("ls", "--json", *words, cache=cache, stdin=stdin)
    assert done.returncode == code, done.stderr

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not strict JSON")

    found: dict[str, Any] = json.loads(done.stdout, parse_constant=refuse)
    return found


def test_ls_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(BLOCK + BLOCK.replace("0.0100", "0.0110"))
    found = ls(str(log), cache=tmp_path / "cache")
    second, first = found["tunings"]
    assert (first["id"], first["occurrence"], second["occurrence"]) == (second["id"], 1, 2)
    assert first["op"] == "mm" and first["shapes"] == [[64, 32], [32, 16]]
    assert first["strides"] == [[32, 1], [16, 1]] and first["dtypes"] == ["torch.float16"] * 2
    assert first["seconds"] == {"benchmark": 1.5, "precompile": 0.5}
    assert first["inputs_key"] is None and first["device"] is None and first["rank"] is None
    assert first["choices"][0] == {
        "name": "triton_mm_1",
        "hash": None,
        "ms": 0.01,
        "config": {"BLOCK_M": "16", "num_warps": "4"},
        "failed": False,
        "offered": True,
        "reason": None,
        "quantiles": None,
        "origin": None,
        "moved": None,
        "measured": None,
    }
    assert first["measurement"] is None
    assert first["sources"] == [str(log)] and first["pinned"] is None
    assert len(first["id"]) == 7 and int(first["id"], 16) >= 0


def test_choices_of_torch_2_15(tmp_path: Path) -> None:
    """As PyTorch's flydsl_template.py and kernel/mm.py name and describe them."""
    rows = (
        "  flydsl_mm_flydsl_7 0.0050 ms 100.0% "
        "FlyDSL template flydsl_mm_flydsl_7 (TILE_M=128, IS_MXFP=False)\n"
        "  contiguous_mm_0 0.0070 ms 71.4% contiguous mm\n  triton_mm_1 0.0100 ms 50.0%"
    )
    block = BLOCK.replace("  triton_mm_1 0.0100 ms 100.0%", rows)
    log = tmp_path / "train.log"
    log.write_text(block.replace("0.0200 ms 50.0%", "0.0200 ms 25.0%").replace("for 2", "for 4"))
    cache = tmp_path / "cache"
    (found,) = ls(str(log), "--filter", "by:flydsl", cache=cache)["tunings"]
    assert [choice["name"] for choice in found["choices"]] == [
        "flydsl_mm_flydsl_7", "contiguous_mm_0", "triton_mm_1", "mm",
    ]  # fmt: skip
    assert found["choices"][0]["config"] == {"TILE_M": "128", "IS_MXFP": "False"}
    shown = call("show", found["id"], "--from", str(log), cache=cache).stdout.decode()
    assert "flydsl" in shown and "subgraph" in shown and "TILE_M=128" in shown, shown


def test_stdin_and_a_folder(tmp_path: Path) -> None:
    assert len(ls("-", cache=tmp_path, stdin=BLOCK.encode())["tunings"]) == 1
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").write_text(BLOCK)
    assert len(ls(str(tmp_path / "logs"), cache=tmp_path)["tunings"]) == 1


def test_nothing_found_is_exit_code_1(tmp_path: Path) -> None:
    assert ls(cache=tmp_path / "none", code=1)["tunings"] == []
    missing = ls(str(tmp_path / "missing.log"), cache=tmp_path, code=1)
    assert missing["problems"][0]["source"].endswith("missing.log")


def test_hostile_names_reach_the_terminal_as_text(tmp_path: Path) -> None:
    log = tmp_path / "evil.log"
    log.write_text(BLOCK.replace("triton_mm_1", "tri\x1b]52;c;ZXZpbA==\x07ton[bold]x[/]"))
    done = call("ls", str(log), cache=tmp_path)
    assert b"\x1b" not in done.stdout + done.stderr and b"\x07" not in done.stdout
    assert b"mm" in done.stdout
    assert "\\u001b" not in json.dumps(ls(str(log), cache=tmp_path))


def test_show_and_refused_pin_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(BLOCK)
    id_ = ls(str(log), cache=tmp_path)["tunings"][0]["id"]
    shown = call("show", id_, "--from", str(log), cache=tmp_path)
    assert shown.returncode == 0
    assert b"BLOCK_M=16" in shown.stdout and "10.0 µs" in shown.stdout.decode()
    refused = call("pin", id_, "#2", "--from", str(log), cache=tmp_path)
    assert refused.returncode == 1
    assert b"known from a log only" in refused.stderr and refused.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ["nonsense"],
        ["ls", "--nonsense"],
        ["pin", "3fa91c2"],
        ["pin", "--bitwise"],
        ["pin", "3fa91c2", "#2", "--undo"],
        ["pin", "--undo", "--note", "x"],
        ["pin", "--undo", "--bitwise"],
        ["pin", "--undo", "--wrong"],
        ["pin", "--undo", "--from", "x"],
        ["pin", "3fa91c2", "#2", "--history"],
        ["unpin"],
        ["run"],
        ["run", "--"],
        ["verify", "--"],
        ["verify", "--timeout", "0"],
        ["verify", "--timeout", "0", "--", "true"],
    ],
)
def test_bad_usage_is_exit_code_2(words: list[str], tmp_path: Path) -> None:
    assert call(*words, cache=tmp_path).returncode == 2


def test_the_next_command_is_for_the_same_cache_dir(tmp_path: Path) -> None:
    refused = call("pin", "3fa91c2", cache=tmp_path)
    shown = f"rocm-tui show 3fa91c2 --cache-dir {tmp_path}".encode()
    assert b"which choice? `" + shown + b"` lists them" in refused.stderr


def test_pins_of_an_empty_cache_dir(tmp_path: Path) -> None:
    assert call("pins", cache=tmp_path).returncode == 0
    assert json.loads(call("pins", "--json", "--history", cache=tmp_path).stdout) == {
        "schema": "rocm-tui/pins/1",
        "pins": [],
        "history": [],
    }
    assert call("verify", cache=tmp_path).returncode == 1
    assert call("unpin", "--all", cache=tmp_path).returncode == 0
    assert not list(tmp_path.iterdir())


def test_the_commands_of_earlier_versions_do_the_same(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(BLOCK)
    for old, new in (
        ("pins", "pin"),
        ("pins --json --history", "pin --json --history"),
        ("undo", "pin --undo"),
        ("undo --json --dry-run", "pin --undo --json --dry-run"),
        ("compare --json", "report --json"),
        (f"compare --json {log}", f"report --json {log}"),
        (f"compare {log} --also-a {log}", f"report {log} {log}"),
    ):
        before, after = (call(*words.split(), cache=tmp_path / "cache") for words in (old, new))
        assert (before.returncode, before.stderr) == (after.returncode, after.stderr), old
        assert before.stdout == after.stdout, old


def test_every_command_has_help(tmp_path: Path) -> None:
    for command in COMMANDS:
        done = call(command, "--help", cache=tmp_path)
        assert done.returncode == 0 and command.encode() in done.stdout
    assert b"[-- CMD...]" in call("verify", "--help", cache=tmp_path).stdout


def test_a_closed_pipe_is_no_traceback(tmp_path: Path) -> None:
    log = tmp_path / "many.log"
    log.write_text("".join(BLOCK.replace("64x32", f"{n}x32") for n in range(1, 3000)))
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m rocm_tui ls {log} | head -n 1"],
        env=child_env(tmp_path),
        capture_output=True,
    )
    assert done.stdout.count(b"\n") == 1 and b"Traceback" not in done.stderr


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real logs is not here")
def test_every_file_of_the_corpus_can_be_listed(tmp_path: Path) -> None:
    found = ls(*(str(path) for path in sorted(CORPUS.glob("*.log"))), cache=tmp_path)
    assert len(found["tunings"]) > 80
    assert all("\x1b" not in json.dumps(tuning) for tuning in found["tunings"])


def test_doctor_finds_torch_and_says_what_to_do(tmp_path: Path) -> None:
    done = call("doctor", "--json", cache=tmp_path)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["torch"]["value"].startswith("2.") and checks["hooks"]["verdict"] == "ok"
    assert checks["cache dir"]["verdict"] in ("ok", "note")
    triton = checks["target triton"]  # the device is a CPU, with Triton or without
    assert triton["verdict"] == "note"
    assert "install the package triton" in triton["advice"] or "on a CPU" in triton["advice"]
    none = call("doctor", "--json", "--python", "/no/such/python", cache=tmp_path)
    assert none.returncode == 1
    bad = [check for check in json.loads(none.stdout)["checks"] if check["verdict"] == "bad"]
    assert bad and all(check["advice"] for check in bad)


def test_ls_filters_and_sorts_as_the_screen_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "train.log"
    other = BLOCK.replace("mm(64x32, 32x16)", "addmm(128x32, 32x16)")
    log.write_text(BLOCK + other)
    assert other != BLOCK

    def ops(*words: str, code: int = 0) -> list[str]:
        found = ls(str(log), *words, cache=tmp_path / "cache", code=code)
        return [tuning["op"] for tuning in found["tunings"]]

    assert ops("--filter", "mm") == ["addmm", "mm"]
    assert ops("--filter", "op:mm") == ["mm"]
    assert ops("--filter", "!op:mm source:train.log") == ["addmm"]
    assert ops("--sort", "op", "--reverse") == ["mm", "addmm"]
    assert ops("--filter", "state:failed", code=1) == []
    none = call("ls", str(log), "--filter", "op:bmm", cache=tmp_path / "cache")
    assert none.returncode == 1
    assert none.stderr == b"rocm-tui: 2 tunings found, none of which passes the filter\n"
    state = tmp_path / "state" / "rocm-tui" / "state.json"
    state.parent.mkdir(parents=True)
    state.write_text('{"filters": {"mine": "!op:mm"}}')
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert ops("--filter", "@mine") == ["addmm"]
    wrong = call("ls", str(log), "--filter", "mm dtpe:bf16", cache=tmp_path / "cache")
    assert wrong.returncode == 2
    place = b"rocm-tui: filter, character 4: no field is called dtpe; did you mean dtype?\n"
    assert wrong.stderr == place
