"""What a command loads: itself alone."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rocm_tui.cli.common import ExitCode
from rocm_tui.cli.entry import COMMANDS, build_parser, main
from rocm_tui.errors import NoSuchTuning, UsageError

SHARED = {"entry", "exits", "parser", "common", "consent", "filtered", "work", "suspects"}


def loaded(*words: str) -> set[str]:
    """The names of the modules of ours that a command line leaves loaded."""
    code = (
        "import sys; from rocm_tui.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "print(*(name for name in sys.modules if name.startswith('rocm_tui.')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    return set(done.stderr.splitlines()[-1].split())


def commands(names: set[str]) -> set[str]:
    ours = {name.removeprefix("rocm_tui.cli.") for name in names if name.count(".") == 2}
    return {name for name in ours if not name.startswith("rocm_tui.")} - SHARED


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_loads_itself_alone(name: str) -> None:
    assert commands(loaded(name, "--help")) == {COMMANDS[name].module}


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["nonsense"], []])
def test_no_command_is_loaded_where_none_is_asked_for(words: list[str]) -> None:
    names = loaded(*words)
    assert not commands(names)
    assert not {name for name in names if name.startswith(("rocm_tui.session", "rocm_tui.ingest"))}


def test_a_program_that_is_run_waits_for_no_store() -> None:
    names = loaded("run", "--cache-dir", "/no/such/folder", "--", "true")
    assert "rocm_tui.launch" in names and "rocm_tui.actions.pin" not in names


def test_the_parser_knows_every_command_without_loading_one() -> None:
    assert build_parser(()).format_help() == build_parser().format_help()


def test_no_words_list_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == ExitCode.USAGE
    listed = capsys.readouterr().out
    assert listed == build_parser(()).format_help()
    shown = [name for name, command in COMMANDS.items() if not command.hidden]
    assert all(f"\n    {name} " in listed for name in shown)


def test_exit_codes() -> None:
    assert [ExitCode.of(True), ExitCode.of(False)] == [0, 1]
    errors = (UsageError("x"), NoSuchTuning("x"), OSError("x"), KeyboardInterrupt())
    assert [ExitCode.of_error(error) for error in errors] == [2, 1, 1, 130]
