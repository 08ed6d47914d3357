"""What a command loads: itself alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest

from backend.errors import Busy
from rocm_tui.actions.improve import AlreadyRunning
from rocm_tui.cli.common import ExitCode
from rocm_tui.cli.entry import ALIASES, COMMANDS, GROUPS, main
from rocm_tui.errors import NoSuchTuning, UsageError

SHARED = {"entry", "group", "common", "filtered", "work"}


def loaded(*words: str) -> set[str]:
    """The names of the modules of ours that a command line leaves loaded."""
    code = (
        "import sys; from rocm_tui.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print(*(name for name in sys.modules if name.startswith(('rocm_tui.', 'backend.'))),"
        " file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    return set(done.stderr.splitlines()[-1].split())


def commands(names: set[str]) -> set[str]:
    ours = (name for name in names if name.startswith("rocm_tui.cli.") and name.count(".") == 2)
    return {name.removeprefix("rocm_tui.cli.") for name in ours} - SHARED


@pytest.mark.parametrize("name", [*COMMANDS, *ALIASES])
def test_a_command_loads_itself_alone(name: str) -> None:
    assert commands(loaded(name, "--help")) == {(COMMANDS | ALIASES)[name].module}


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["nonsense"], ["--nonsense"]])
def test_no_command_is_loaded_where_none_is_asked_for(words: list[str]) -> None:
    names = loaded(*words)
    assert not commands(names)
    assert not {name for name in names if name.startswith(("rocm_tui.session", "rocm_tui.ingest"))}


def test_a_program_that_is_run_waits_for_no_store() -> None:
    names = loaded("run", "--cache-dir", "/no/such/folder", "--", "true")
    assert "rocm_tui.launch" in names and "backend.pins.store" not in names


def test_help_lists_every_command_of_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == ExitCode.YES
    table = capsys.readouterr().out.split("\n\n")[2].splitlines()
    expected = [
        f"{'' if number else title:<8}{name:<12}{command.help}"
        for title, commands in GROUPS.items()
        for number, (name, command) in enumerate(commands.items())
    ]
    assert table == expected
    assert not set(ALIASES) & {line[8:].split()[0] for line in table}


def test_no_words_open_the_screen(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[Sequence[str]] = []

    def screen(paths: Sequence[str], **rest: object) -> int:
        opened.append(paths)
        return 3

    monkeypatch.setattr("rocm_tui.cli.watch.run_watch", screen)
    assert main([]) == 3 and len(opened) == 1
    assert capsys.readouterr().out == ""


def test_exit_codes() -> None:
    assert [ExitCode.of(True), ExitCode.of(False)] == [0, 1]
    errors = (UsageError("x"), NoSuchTuning("x"), OSError("x"), KeyboardInterrupt())
    assert [ExitCode.of_error(error) for error in errors] == [2, 1, 1, 130]
    for error in (AlreadyRunning("x"), Busy("x")):
        assert ExitCode.of_error(error) == 3
