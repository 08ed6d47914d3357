"""`rocm-tui config`: what it prints, writes and checks, with its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rocm_tui.cli import main


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the settings would be; there is no file yet."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "rocm-tui" / "config.toml"


def test_write_check_print(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "--write"]) == 0 and path.exists()
    assert main(["config", "--write"]) == 1
    assert "--yes writes it anew and keeps a copy" in capsys.readouterr().err
    mine = '[limits]\nlog_lines = 77\n[keys]\nwatch.pin = "f5"\n'
    path.write_text(mine)
    assert main(["config", "--write", "--yes"]) == 0
    assert path.with_name("config.toml.1").read_text() == mine


def test_a_good_file(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.parent.mkdir()
    path.write_text('[limits]\nlog_lines = 77\n[keys]\nwatch.pin = "f5"\n')
    assert main(["config", "--check"]) == 0
    assert capsys.readouterr().out == f"{path}: 2 settings\n"
    assert main(["config"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["limits.log_lines", "77", "line", "2"] in lines
    assert ["keys.watch.pin", '"f5"', "line", "4"] in lines
    assert ["keys.watch.unpin", '"u"', "default"] in lines
    assert main(["config", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["settings"]["limits.log_lines"] == {"value": 77, "from": "line 2"}
    assert told["path"] == str(path) and told["mistakes"] == []
    assert told["memory_problem"] is None


def test_a_bad_file(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = path.parent.with_name("bad.toml")
    bad.write_text('[keys]\nwatch.pin = "u"\n[colours]\nbad = "ruby"\n[columns]\nhide = ["tim"]\n')
    monkeypatch.setenv("ROCM_TUI_CONFIG", str(bad))
    assert main(["config", "--check"]) == 1
    shown = capsys.readouterr()
    assert shown.out == f"{bad}: 2 settings, 3 not used\n"
    lines = shown.err.splitlines()
    assert "2: watch.pin and watch.unpin would both be 'u'" in lines[0]
    assert "4: colours.bad: 'ruby' is no colour" in lines[1]
    assert "6: columns.hide: no column 'tim': did you mean 'time'?" in lines[2]
    assert main(["config"]) == 0, "it prints what holds"


@pytest.mark.parametrize(
    "words",
    [
        "measure 713276b",
        "trial 713276b",
        "verify",
        "improve",
        "prove",
        "agree",
        "run --agree -- none",
    ],
)
def test_a_command_that_uses_the_settings_says_what_is_wrong(
    words: str, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.parent.mkdir()
    path.write_text("[budgets]\nmeasure = 0\n")
    command, *rest = words.split()
    main([command, "--cache-dir", str(tmp_path / "none"), *rest])
    mistakes = [line for line in capsys.readouterr().err.splitlines() if "budgets.measure" in line]
    assert len(mistakes) == 1 and f"{path}:2: " in mistakes[0]


def test_read_only_by_a_mistake_has_that_origin(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path.parent.mkdir()
    path.write_text("[watch]\nread_only = false\nreadonly = false\n")
    main(["config", "--json"])
    told = json.loads(capsys.readouterr().out)["settings"]["watch.read_only"]
    assert (told["value"], told["from"]) == (True, "a mistake")


def test_ls_and_config_say_what_of_our_files_is_broken(
    path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    state = tmp_path / "state" / "rocm-tui" / "state.json"
    state.parent.mkdir(parents=True)
    state.write_text("{broken")
    path.parent.mkdir(exist_ok=True)
    path.write_text("no [toml")
    assert main(["config"]) == 0
    told = capsys.readouterr().err
    assert (
        f"{path}:1: not valid TOML" in told
        and f"nothing is remembered: {state} is not JSON" in told
    )
    main(["config", "--json"])
    assert str(state) in json.loads(capsys.readouterr().out)["memory_problem"]
    main(["ls", "--cache-dir", str(tmp_path)])
    assert f"rocm-tui: {path}:1: not valid TOML" in capsys.readouterr().err
    assert state.read_text() == "{broken", "a file that is not ours is left alone"
