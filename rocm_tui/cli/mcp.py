"""`rocm-tui mcp`: the tools of the MCP server, each a row with a command of ours."""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import click

from rocm_tui.cli import common
from rocm_tui.cli.common import PROGRAM, ExitCode
from rocm_tui.cli.entry import rocm_tui
from rocm_tui.errors import RocmTuiError
from rocm_tui.mcp.tools import Tool

TOOLS = (
    Tool("list", ("ls",), "paths tied filter sort reverse"),
    Tool("show", ("show",), "id choice history sources", "id"),
    Tool("sessions", ("sessions",), "paths"),
    Tool("pins", ("pin",), "history", about="List the pins and their states."),
    Tool("graphs", ("graphs",), "id sources"),
    Tool("compare", ("compare",), "a b also_a also_b fail_on_regression", "a b"),
    Tool("report", ("report",), "paths"),
    Tool("doctor", ("doctor",), "files"),
    Tool("lint", ("lint",), "tables device rule ignore each", "tables"),
    Tool("cover", ("cover",), "paths tables device missed", "paths"),
    Tool(
        "measure",
        ("measure",),
        "id choices budget within rounds repeat cold hot suspects filter device dry_run sources",
        acts=True,
    ),
    Tool(
        "tune",
        ("tune",),
        "words dtype strides precision from_log all backends search_space templates budget device "
        "all_devices dry_run sources",
        acts=True,
    ),
    Tool(
        "trial",
        ("trial",),
        "id choices graph budget rounds processes yes device dry_run sources",
        "id",
        acts=True,
    ),
    Tool("pin", ("pin",), "id choice note dry_run bitwise wrong sources", "id choice", acts=True),
    Tool("unpin", ("unpin",), "ids all dry_run", acts=True),
    Tool(
        "undo",
        ("pin", "--undo"),
        "dry_run",
        acts=True,
        about="Undo the latest pin or unpin, whoever made it.",
    ),
    Tool("verify", ("verify",), "ids timeout device dry_run", acts=True),
)
"""No tool runs a program or names a Python. Of the paths that an agent can name, only a tuned table
is written, by `pin FILE:LINE`."""

INSTRUCTIONS = (
    "Tools of rocm-tui: what PyTorch Inductor's autotuning decided, which choice is really faster, "
    "and pins that keep a choice. Times are in milliseconds; null is unknown; a time that was "
    "taken once proves nothing. Measure before you pin, and verify afterwards. Stop when "
    "`measure` says tied or unclear. Lists are short: `cut` says what is missing and what is next."
)
INSTALL = "pip install 'mcp>=2.3,<3'"


class McpMissing(RocmTuiError):
    """The extra `mcp` is not installed."""


@click.command()
@click.option(
    "--read-only/--no-read-only",
    default=None,
    help="Refuse tools that write files or run jobs (default: as configured for watch).",
)
@common.flag(
    "--allow-changes", "Let tools act without asking, for clients that cannot ask a person."
)
@common.python_option
@common.cache_dir_option
def mcp_command(
    read_only: bool | None, allow_changes: bool, python: str | None, cache_dir: Path | None
) -> int:
    """Serve tools to an agent over stdio, by the Model Context Protocol.

    Reading tools run without a question. Tools that act need a person's consent to each call, which
    the client obtains. Needs the package mcp.

    Example: rocm-tui mcp --read-only
    """
    common.require_at_most_one(read_only=read_only, allow_changes=allow_changes)
    if find_spec("mcp") is None:
        raise McpMissing(f"mcp needs a package that is not installed: {INSTALL}")
    from rocm_tui.mcp.server import Rights, serve  # needs the extra

    common.report_settings()
    read_only = common.starts_read_only() if read_only is None else read_only
    context = click.Context(rocm_tui)
    tools = {}
    for tool in TOOLS:
        command = rocm_tui.get_command(context, tool.words[0])
        assert command is not None
        tools[tool.name] = (tool, command)
    fixed = {"cache_dir": str(cache_dir.absolute()) if cache_dir else None, "python": python}
    serve(
        tools,
        version=metadata.version(PROGRAM),
        instructions=INSTRUCTIONS,
        rights=Rights(read_only, allow_changes),
        fixed={name: value for name, value in fixed.items() if value is not None},
    )
    return ExitCode.YES
