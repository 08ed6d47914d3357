"""Kernels of `@triton.autotune` on the command line: listed, pinned, proved by their program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rocm_tui.cli.entry import main
from tests.support import autotuned


def listed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    main(["ls", "--json"])
    tunings: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["tunings"]
    return tunings


def state(capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    main(["pins", "--json"])
    (pin,) = json.loads(capsys.readouterr().out)["pins"]
    return str(pin["state"])


def test_a_pin_is_active_once_its_program_was_seen_to_launch_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "triton"
    (tmp_path / "inductor").mkdir()
    for name, value in autotuned.environment(cache).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    argv = autotuned.argv(1024)
    monkeypatch.delenv("TRITON_CACHE_AUTOTUNING")
    assert main(["run", "--cache-triton", "--quiet", "--", *argv]) == 0
    told = capfd.readouterr().err
    assert "1 tuning of @triton.autotune kept" in told and "0 tunings" not in told
    (tuning,) = listed(capfd)  # as the session tells it, and the file
    assert tuning["session"] and len(tuning["sources"]) == 2
    assert tuning["op"] == "triton" and tuning["inputs_key"].startswith("scale_kernel[1024,")
    assert [choice["ms"] for choice in tuning["choices"]] == [1.5, 2.0, 3.0]
    assert tuning["choices"][0]["quantiles"] == pytest.approx([1.35, 1.65])
    assert tuning["choices"][2]["config"] == {"BLOCK": "32", "num_warps": "1", "num_stages": "3"}

    assert main(["show", tuning["id"]]) == 0
    assert "1.350 ms – 1.650 ms" in capfd.readouterr().out
    assert main(["pin", tuning["id"], "#3"]) == 0
    assert state(capfd) == "unproven"
    assert main(["verify"]) == 1
    assert "rocm-tui verify -- CMD" in capfd.readouterr().out
    assert main(["verify", "--", *argv]) == 1  # it reads no times
    assert "TRITON_CACHE_AUTOTUNING=1" in capfd.readouterr().out
    assert state(capfd) == "unproven"
    monkeypatch.setenv("TRITON_CACHE_AUTOTUNING", "1")
    assert main(["verify", "--", *argv]) == 0
    assert "called: BLOCK=32 w1 s3" in capfd.readouterr().out
    assert state(capfd) == "active"
    (row,) = listed(capfd)
    assert row["in_use"] == tuning["choices"][2]["hash"]
    assert main(["unpin", tuning["id"]]) == 0
    assert main(["verify", "--", *argv]) == 1


def test_run_records_what_triton_keeps_in_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path / "triton"
    for name, value in autotuned.environment(cache, TRITON_CACHE_AUTOTUNING="0").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    assert main(["run", "--quiet", "--", *autotuned.argv(1024)]) == 0
    assert json.loads(capfd.readouterr().out)["launched"] == [{"block": 64, "warps": 2}]
    assert autotuned.files(cache) == []
    (tuning,) = listed(capfd)
    assert tuning["inputs_key"] == 'scale_kernel[1024, "torch.float32"]'
    assert [choice["ms"] for choice in tuning["choices"]] == [1.5, 2.0, 3.0]
    assert tuning["choices"][0]["hash"] == tuning["selected"] and tuning["session"]
    assert main(["pin", tuning["id"], "#2"]) == 1
    assert "rocm-tui run --cache-triton" in capfd.readouterr().err


def test_a_program_that_looks_in_another_cache_is_told_where_the_pinned_times_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    inner = tmp_path / "inductor" / "triton" / "0"  # Inductor's, of a process that compiles
    inner.mkdir(parents=True)
    for name, value in autotuned.environment(inner).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    argv = autotuned.argv(1024)
    autotuned.run(inner, 1024)
    (tuning,) = listed(capfd)
    assert main(["pin", tuning["id"], "#3"]) == 0
    assert main(["verify", "--", *argv]) == 0
    assert "TRITON_CACHE_DIR" not in capfd.readouterr().out

    monkeypatch.delenv("TRITON_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("TRITON_HOME", raising=False)
    assert main(["verify", "--", *argv]) == 1
    told = capfd.readouterr().out
    assert "not called: Triton launched BLOCK=64 w2 s3 instead of BLOCK=32 w1 s3" in told
    assert f"set TRITON_CACHE_DIR={inner}" in told
    main(["pins", "--json"])
    (pin,) = json.loads(capfd.readouterr().out)["pins"]
    assert pin["state"] == "unproven"
    assert pin["detail"].startswith("its program launched another config on 20")
