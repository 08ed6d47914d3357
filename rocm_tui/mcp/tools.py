"""Tools as rows of a table: their parameters are those of a command, checked before it runs.

A tool has no code of its own. It becomes a command line, so it cannot do what the command does not,
and what a command refuses a tool refuses.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from backend.errors import brief
from rocm_tui.errors import UsageError

MOST_CHARACTERS = 4_096
MOST_VALUES = 100
SHOWN = 20
"""Items of a list in a result, where the caller does not set `limit`."""
NESTED = 3
"""Items of a list inside an item."""
MOST_TEXT = 2_000
"""Characters of one string in a result."""
MOST_RESULT = 40_000
"""Characters of a result; one that is longer shows fewer items."""

_SCALARS = {"integer": "integer", "float": "number", "percentage": "number"}
PAGING = {
    "offset": {"type": "integer", "minimum": 0, "description": "Skip this many items of lists."},
    "limit": {
        "type": "integer",
        "minimum": 1,
        "maximum": 1_000,
        "description": f"Return at most this many items of a list (default: {SHOWN}).",
    },
}


@dataclass(frozen=True)
class Tool:
    """A command that an agent may run, with those of its parameters that it may set.

    `words` begin the command line; `about` describes a tool that is only a part of its command. A
    tool that `acts` has a dry run, needs consent, and is refused under read-only.
    """

    name: str
    words: tuple[str, ...]
    parameters: str
    required: str = ""
    acts: bool = False
    about: str = ""


def schema_of(tool: Tool, command: click.Command) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments."""
    options = {param.name: param for param in command.params}
    properties = {
        name: _type_of(options[name]) | {"description": _about(tool, command, options[name])}
        for name in tool.parameters.split()
    }
    return {
        "type": "object",
        "properties": properties | PAGING,
        "required": tool.required.split(),
        "additionalProperties": False,
    }


def description_of(tool: Tool, command: click.Command) -> str:
    """Return the help of a command, without its examples and what the tool does not offer."""
    paragraphs = inspect.cleandoc(tool.about or command.help or "").split("\n\n")
    offered = (
        _offered(tool, command, " ".join(text.split()))
        for text in paragraphs
        if not text.startswith(("\b", "Example"))
    )
    return "\n\n".join(filter(None, offered))


def _about(tool: Tool, command: click.Command, param: click.Parameter) -> str:
    if not isinstance(param, click.Option):
        return f"{(param.metavar or '').strip('[].')}, as above"
    text = _offered(tool, command, (param.help or "").replace(" (repeatable)", ""))
    return f"{param.metavar}: {text}" if param.metavar else text


_SENTENCES = re.compile(r"(?<=\.) (?=[A-Z`-])")
_OPTION = re.compile(r"(?<![\w-])-[\w-]*")


def _offered(tool: Tool, command: click.Command, text: str) -> str:
    """Return `text` without sentences about options that the tool lacks, or about the absence of an
    argument that it requires; its options have the names of its parameters.
    """
    parameters = {param.name: param for param in command.params}
    names = {option: name for name in tool.parameters.split() for option in parameters[name].opts}
    required = {
        f"Without {(parameters[name].metavar or '').strip('[].')},"
        for name in tool.required.split()
    }
    return " ".join(
        _OPTION.sub(lambda option: names[option[0]], sentence)
        for sentence in _SENTENCES.split(text)
        if {*_OPTION.findall(sentence)} <= {*names} and not sentence.startswith(tuple(required))
    )


def _type_of(param: click.Parameter) -> dict[str, Any]:
    if isinstance(param, click.Option) and param.is_flag:
        return {"type": "boolean"}
    value: dict[str, Any] = {"type": _SCALARS.get(param.type.name, "string")}
    if isinstance(param.type, click.Choice):
        value["enum"] = list(param.type.choices)
    elif value["type"] == "string":
        value |= {"minLength": 1, "maxLength": MOST_CHARACTERS}
    if param.multiple or param.nargs == -1:
        return {"type": "array", "items": value, "maxItems": MOST_VALUES}
    return value


def command_line(
    tool: Tool, command: click.Command, arguments: Mapping[str, Any], fixed: Mapping[str, str]
) -> list[str]:
    """Return the words of a call, without `--json`.

    `fixed` are values of options that the server sets where the command has them. Raises
    UsageError for arguments that could be read as options, or would spoil a line of text.
    """
    words, positional = list(tool.words), []
    for param in command.params:
        name = param.name or ""
        value = fixed.get(name, arguments.get(name))
        if value is None:
            continue
        values = [str(each) for each in value] if isinstance(value, list) else [str(value)]
        if name not in fixed and not all(map(str.isprintable, values)):
            raise UsageError(f"{name} has characters that cannot be printed")
        if isinstance(param, click.Argument):
            if option := next((text for text in values if text.startswith("-")), None):
                raise UsageError(f"{name} cannot begin with -: {brief(option, 60)}")
            positional += values
        elif isinstance(value, bool):
            words += (param.opts if value else param.secondary_opts)[-1:]
        else:
            words += [f"{max(param.opts, key=len)}={text}" for text in values]
    return [*words, *positional]


def page(document: dict[str, Any], offset: int, limit: int) -> dict[str, Any]:
    """Return a result that fits: `document` with shortened lists, and in `cut` what is missing.

    A list has `limit` items from `offset` on; a list of objects inside an item has its first three.
    """
    while True:
        cut: dict[str, Any] = {}
        result = {"document": _shortened(document, "", offset, limit, cut)}
        if cut:
            result["cut"] = cut
        if limit == 1 or len(json.dumps(result)) <= MOST_RESULT:
            return result
        limit //= 2


def _shortened(value: Any, path: str, offset: int, limit: int, cut: dict[str, Any]) -> Any:
    if isinstance(value, str):
        if len(value) <= MOST_TEXT:
            return value
        cut[path] = {"characters": len(value)}
        return value[:MOST_TEXT]
    if isinstance(value, dict):
        return {
            key: _shortened(item, f"{path}.{key}" if path else key, offset, limit, cut)
            for key, item in value.items()
        }
    if not isinstance(value, list):
        return value
    nested = "[]" in path
    objects = any(isinstance(item, dict) for item in value)
    first, most = (0, NESTED if objects else MOST_VALUES) if nested else (offset, limit)
    shown = value[first : first + most]
    if len(shown) < len(value):
        following = first + len(shown)
        cut[path] = {"total": len(value), "shown": len(shown)}
        if not nested and following < len(value):
            cut[path]["next_offset"] = following
    return [_shortened(item, f"{path}[]", offset, limit, cut) for item in shown]
