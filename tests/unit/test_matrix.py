"""What `python -m tests.matrix` is called with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.matrix.__main__ import interpreter


def test_an_interpreter_is_known_by_its_path_from_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bin_ = tmp_path / "venv" / "bin"
    bin_.mkdir(parents=True)
    real = tmp_path / "python3"
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)
    (bin_ / "python").symlink_to(real)
    monkeypatch.chdir(tmp_path)
    assert interpreter("venv/bin/python") == str(bin_ / "python"), "the link tells the environment"
    monkeypatch.setenv("PATH", str(bin_))
    assert interpreter("python") == str(bin_ / "python")
    assert interpreter("gone/python") == str(tmp_path / "gone" / "python")
