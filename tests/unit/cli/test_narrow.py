"""Free text on a narrow terminal: whole words, each line below the first; a pipe gets all of it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import click
import pytest

from rocm_tui import say
from rocm_tui.actions.doctor import DoctorCheck
from rocm_tui.cli import setup
from rocm_tui.cli.entry import ALIASES, COMMANDS, main, rocm_tui
from rocm_tui.render.table import hanging
from tests.support.screen_lab import write_cache


def test_a_line_hangs_below_its_head() -> None:
    assert hanging("name  ", "one two three four", 200) == "name  one two three four"
    shown = hanging("name  ", "one two three four five six", 26).splitlines()
    assert shown == ["name  one two three four", "      five six"]
    path = f"/{'long/' * 12}file"
    assert path in hanging("at  ", f"{path}, /b", 30).splitlines()[0], "it can be copied"


def _one_tuning(cache: Path, capsys: pytest.CaptureFixture[str]) -> tuple[tuple[str, str], str]:
    """Where it is, as words of a command, and its id."""
    write_cache(cache, 16)
    place = ("--cache-dir", str(cache))
    assert main(["ls", "--json", *place]) == 0
    return place, json.loads(capsys.readouterr().out)["tunings"][0]["id"]


@pytest.mark.parametrize("width", [60, 80])
def test_show_pins_report_and_doctor_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    place, id = _one_tuning(tmp_path, capsys)
    note = "faster in the model that we train this week, and steadier under load than the others"
    assert main(["pin", id, "#1", "--note", note, *place]) == 0
    capsys.readouterr()
    advice = "write the bytes of torch.compiler.save_cache_artifacts()[0] to a file and try again"
    checks = [
        DoctorCheck(
            "mega-cache", "bad", "it is no mega-cache that can be read, for a reason", advice
        )
    ]
    for words in (["show", id, *place], ["pins", "--history", *place], ["report", *place], []):
        texts = {}
        for cells in (None, width):
            monkeypatch.setattr(say, "width", lambda cells=cells: cells)
            assert main(words) == 0 if words else setup._print_checks(checks) is None
            texts[cells] = capsys.readouterr().out
        wide, narrow = (texts[cells].splitlines() for cells in (None, width))
        long = [line for line in narrow if len(line) > width]
        assert all(len(line.split()[-1]) > width // 2 for line in long), long
        assert max(map(len, wide)) > width and len(narrow) >= len(wide) + ("show" not in words)


def test_of_a_choice_in_use_and_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place, id = _one_tuning(tmp_path, capsys)
    assert main(["show", id, *place]) == 0
    before = capsys.readouterr().out
    note = "faster in the model that we train this week, and steadier under load"
    assert main(["pin", id, "#2", "--note", note, *place]) == 0
    capsys.readouterr()
    assert main(["show", id, *place]) == 0
    facts = dict(
        line.split(None, 1) for line in capsys.readouterr().out.split("\n\n")[0].splitlines()
    )
    assert facts["in"].startswith("use") and list(facts).index("in") < list(facts).index("fastest")
    fast = next(line for line in before.splitlines() if line.startswith("throughput"))
    assert facts["throughput"] != fast.split(None, 1)[1], "it is that of what is in use"
    for width in (60, 80, 120):
        monkeypatch.setattr(say, "width", lambda width=width: width)
        assert main(["show", id, "--history", *place]) == 0
        *_, table = capsys.readouterr().out.split("\n\n")
        heading, *lines = table.splitlines()
        assert max(map(len, lines)) <= width and not any("pin by ro…" in line for line in lines)
        column = heading.index("changed")
        written = " ".join(line[column:].strip() for line in lines if len(line) > column)
        assert note in written


def test_the_state_of_a_pin_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place, id = _one_tuning(tmp_path, capsys)
    assert main(["pin", id, "#1", *place]) == 0
    capsys.readouterr()
    for width in (72, 80, 90):
        monkeypatch.setattr(say, "width", lambda width=width: width)
        assert main(["ls", *place]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= width
        assert ("active" in lines[1]) == ("pin" in lines[0].split())


@pytest.mark.parametrize("name", [*COMMANDS, *ALIASES])
def test_help_fits_and_breaks_no_option(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main([name, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"Usage: rocm-tui {name} ")
    assert [line for line in lines if len(line) > 80] == []
    usage = lines[: lines.index("")]
    assert all(line.count("[") == line.count("]") for line in usage)


def test_the_help_fits_on_one_screen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 36 and max(map(len, lines)) <= 80


def _examples(name: str, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """Return the command lines after `Example:` in the help, without `rocm-tui`."""
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out.partition("Example")[2].partition("\n\n")[0]
    lines = text.removeprefix("s").removeprefix(":").strip().splitlines()
    return [shlex.split(line.strip().removeprefix("rocm-tui ")) for line in lines]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_that_parses(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    examples = _examples(name, capsys)
    assert examples and all(words[0] == name for words in examples)
    context = click.Context(rocm_tui)
    command = rocm_tui.get_command(context, name)
    assert command is not None
    for words in examples:
        assert command.make_context(name, words[1:], parent=context).args == []


FRAGMENT = ("Of ", "Only ", "For ", "The ", "A ", "An ", "One ", "Default", "These ", "That ")


@pytest.mark.parametrize("name", [*COMMANDS, *ALIASES])
def test_options_are_explained_by_sentences(name: str) -> None:
    command = rocm_tui.get_command(click.Context(rocm_tui), name)
    assert command is not None
    options = [option for option in command.params if isinstance(option, click.Option)]
    texts = [option.help for option in options if not option.hidden]
    wrong = [
        text for text in texts if text is None or text.startswith(FRAGMENT) or text[-1] not in ".)"
    ]
    assert wrong == []
