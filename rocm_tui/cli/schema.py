"""`rocm-tui schema [NAME]`: the JSON Schemas of what commands print with `--json`."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import click

from rocm_tui import cli, say
from rocm_tui.cli.common import ExitCode
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.json_output import Document, encode, json_schema, kinds_below, schema_tag
from rocm_tui.meant import did_you_mean


def documents() -> dict[str, type[Document]]:
    """Return the type of every document by its name, such as `ls` or `show-history`."""
    for module in pkgutil.iter_modules(cli.__path__, f"{cli.__name__}."):
        import_module(module.name)
    ours = [kind for kind in kinds_below(Document) if kind.__module__.startswith("rocm_tui.")]
    return {schema_tag(kind).split("/")[1]: kind for kind in ours}


@click.command()
@click.argument("name", metavar="[NAME]", required=False)
def schema_command(name: str | None) -> int:
    """Print the JSON Schema of document NAME; without NAME, list the names.

    NAME is the middle of the member `schema` of a document: `ls` of "rocm-tui/ls/1".

    Example: rocm-tui schema ls
    """
    kinds = documents()
    if name is None:
        for schema in sorted(map(schema_tag, kinds.values())):
            say.out(schema)
    elif name in kinds:
        say.out(encode(json_schema(kinds[name]), indent=2))
    else:
        near = did_you_mean(name, kinds)
        raise UsageError(f"no document is called {plain(name)}{near}: `rocm-tui schema` lists them")
    return ExitCode.YES
