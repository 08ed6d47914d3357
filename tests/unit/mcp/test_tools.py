"""Tools are rows: their parameters exist, become the words of a command, and results fit."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

import click
import pytest
from jsonschema import Draft202012Validator

from rocm_tui.cli.entry import rocm_tui
from rocm_tui.cli.mcp import TOOLS
from rocm_tui.errors import UsageError
from rocm_tui.mcp.tools import (
    MOST_RESULT,
    MOST_TEXT,
    Tool,
    command_line,
    description_of,
    page,
    schema_of,
)

BY_NAME = {tool.name: tool for tool in TOOLS}
NEVER = {"python", "cache_dir", "program", "json"}
WRITING = {"reproducer", "write", "output", "force", "fleet", "tunableop", "text", "source"}


def command_of(tool: Tool) -> click.Command:
    command = rocm_tui.get_command(click.Context(rocm_tui), tool.words[0])
    assert command is not None
    return command


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_row_names_parameters_of_its_command(tool: Tool) -> None:
    command = command_of(tool)
    schema = schema_of(tool, command)
    Draft202012Validator.check_schema(schema)
    names = {param.name for param in command.params}
    assert {*tool.parameters.split()} <= names - NEVER - WRITING and "json" in names
    assert {*tool.required.split()} <= {*tool.parameters.split()}
    required = {p.name for p in command.params if p.required}
    assert required <= {*tool.required.split()}


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_tool_is_described_as_what_it_offers(tool: Tool) -> None:
    """No option of the command line, nothing of stdin, and no padding."""
    command = command_of(tool)
    text = description_of(tool, command)
    texts = [text, *(p["description"] for p in schema_of(tool, command)["properties"].values())]
    for text in texts:
        assert text and "  " not in text and text == text.strip()
        assert not re.search(r"(^|[^\w-])-|stdin|Example|CMD|repeatable", text)
    assert not tool.required or not re.search(r"Without (ID|CHOICE),? ", texts[0])


def test_options_are_named_as_parameters() -> None:
    tool = BY_NAME["measure"]
    assert "filter goes with suspects" in description_of(tool, command_of(tool))
    budget = schema_of(tool, command_of(tool))["properties"]["budget"]["description"]
    assert budget.startswith("SECONDS: Measure for at most this long")


def test_what_acts_is_marked() -> None:
    acting = {tool.name for tool in TOOLS if tool.acts}
    assert all("dry_run" in tool.parameters.split() for tool in TOOLS if tool.acts)
    assert acting == {"measure", "tune", "trial", "pin", "unpin", "undo", "verify"}


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("list", {}, "ls"),
        ("list", {"paths": ["a b", "c"], "tied": True, "reverse": False}, "ls --tied|a b|c"),
        ("show", {"id": "a72", "choice": "#2"}, "show|a72|#2"),
        ("show", {"id": "a72", "sources": ["x", "-y"]}, "show --from=x --from=-y|a72"),
        ("tune", {"words": ["a72"], "templates": False}, "tune --no-templates|a72"),
        ("tune", {"words": ["a72"], "templates": True}, "tune --templates|a72"),
        ("measure", {"id": "a72", "budget": 1.5}, "measure --budget=1.5|a72"),
        ("measure", {"id": "a", "device": "--python=/x"}, "measure --device=--python=/x|a"),
        ("undo", {"dry_run": True}, "pin --undo --dry-run"),
    ],
)
def test_arguments_become_words(name: str, arguments: dict[str, Any], words: str) -> None:
    tool = BY_NAME[name]
    head, *rest = words.split("|")
    assert command_line(tool, command_of(tool), arguments, {}) == [*head.split(), *rest]


def test_the_server_sets_what_the_agent_may_not() -> None:
    fixed = {"cache_dir": "/c\n", "python": "/p"}
    tool, other = BY_NAME["verify"], BY_NAME["lint"]
    words = command_line(tool, command_of(tool), {"ids": ["a"]}, fixed)
    assert words == ["verify", "--python=/p", "--cache-dir=/c\n", "a"]
    assert command_line(other, command_of(other), {"tables": ["t"]}, fixed) == ["lint", "t"]


@pytest.mark.parametrize(
    "arguments",
    [
        {"paths": ["-"]},
        {"paths": ["--json"]},
        {"paths": ["a\nb"]},
        {"paths": ["a\n"]},
        {"paths": ["\x1b[31m"]},
        {"filter": "op:mm\x00"},
        {"paths": ["\u202eabc"]},
        {"paths": ["\ud800"]},
    ],
)
def test_what_could_be_an_option_or_spoil_a_line_is_refused(arguments: dict[str, Any]) -> None:
    tool = BY_NAME["list"]
    with pytest.raises(UsageError) as refused:
        command_line(tool, command_of(tool), arguments, {})
    assert str(refused.value).isprintable()


def items(count: int, size: int = 1) -> list[dict[str, Any]]:
    choices = [{"name": str(n)} for n in range(5)]
    return [
        {"id": n, "text": "x" * size, "choices": choices, "shape": [8] * 4} for n in range(count)
    ]


def test_lists_are_paged_and_say_so() -> None:
    document = {"schema": "s", "tunings": items(50), "problems": []}
    result = page(document, 20, 20)
    assert [tuning["id"] for tuning in result["document"]["tunings"]] == [*range(20, 40)]
    assert result["cut"]["tunings"] == {"total": 50, "shown": 20, "next_offset": 40}
    assert result["cut"]["tunings[].choices"] == {"total": 5, "shown": 3}
    assert result["document"]["tunings"][0]["shape"] == [8] * 4
    last = page(document, 40, 20)["cut"]["tunings"]
    assert last == {"total": 50, "shown": 10}
    assert page({"a": [1, 2]}, 0, 20) == {"document": {"a": [1, 2]}}


def test_all_pages_together_are_the_list() -> None:
    document, seen, offset = {"tunings": items(95)}, [], 0
    while offset is not None:
        result = page(document, offset, 20)
        seen += [tuning["id"] for tuning in result["document"]["tunings"]]
        offset = result["cut"]["tunings"].get("next_offset")
    assert seen == [*range(95)]


def test_a_long_result_shows_fewer_items_and_long_text_is_cut() -> None:
    result = page({"tunings": items(1000, 1900)}, 0, 1000)
    assert len(json.dumps(result)) <= MOST_RESULT
    assert result["cut"]["tunings"]["next_offset"] == len(result["document"]["tunings"]) > 1
    text = page({"a": {"b": "y" * 9_000}}, 0, 20)
    assert text["document"]["a"]["b"] == "y" * MOST_TEXT
    assert text["cut"] == {"a.b": {"characters": 9_000}}


def test_without_the_extra_one_line_says_what_to_install() -> None:
    code = (
        "import importlib.util as u, sys; find = u.find_spec\n"
        "u.find_spec = lambda name, *rest: None if name == 'mcp' else find(name, *rest)\n"
        "from rocm_tui.cli.entry import main; sys.exit(main(['mcp']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    line = "rocm-tui: mcp needs a package that is not installed: pip install 'mcp>=2.3,<3'\n"
    assert done.stderr == line


@pytest.mark.parametrize("words", [["ls", "--help"], ["mcp", "--help"], ["--help"]])
def test_nothing_but_the_server_loads_the_sdk(words: list[str]) -> None:
    code = (
        "import sys; from rocm_tui.cli.entry import main; main(sys.argv[1:]); "
        "sys.exit(any(n.split('.')[0] in ('mcp', 'pydantic', 'jsonschema') for n in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code, *words], stdout=-3).returncode == 0
