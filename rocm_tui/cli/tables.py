"""`rocm-tui lint` and `cover`: the tuned tables of other tuners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from backend.counted import counted
from rocm_tui import say
from rocm_tui.actions.cover import Written, read_files, write_untuned
from rocm_tui.actions.lint import device_here, lint_files
from rocm_tui.cli import common
from rocm_tui.cli.common import CommandArguments, ExitCode
from rocm_tui.errors import NoSuchSource, UsageError
from rocm_tui.harmless import plain
from rocm_tui.render.cover import (
    TUNERS,
    cover_json,
    cover_notes,
    cover_sum,
    cover_text,
)
from rocm_tui.render.entries import findings_text, lint_json, rules_text
from rocm_tui.tables.coverage import Coverage, cover
from rocm_tui.tables.device import device_given
from rocm_tui.tables.lint import RULE_IDS
from rocm_tui.tables.untuned import untuned_lists

_LIBRARIES = ("torch", "hip", "rocm", "hipblaslt", "rocblas")


def _version_option(library: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        f"--{library}",
        metavar="VERSION",
        help=f"Check for this version of {library}; 2.9 means every 2.9.x.",
    )


@click.command()
@click.argument("tables", metavar="[TABLE]...", type=common.SOURCE, nargs=-1)
@click.option(
    "--device",
    metavar="DEVICE",
    help="Check for gfx942:304 (compute units), gfx942 or MI300X (default: this machine's).",
)
@_version_option("torch")
@_version_option("hip")
@_version_option("rocm")
@_version_option("hipblaslt")
@_version_option("rocblas")
@click.option(
    "--rule",
    type=click.Choice(RULE_IDS),
    multiple=True,
    metavar="RULE",
    help="Check only this rule (repeatable).",
)
@click.option(
    "--ignore",
    type=click.Choice(RULE_IDS),
    multiple=True,
    metavar="RULE",
    help="Skip this rule (repeatable).",
)
@click.option("--each", is_flag=True, help="List each row instead of grouping equal findings.")
@click.option("--rules", is_flag=True, help="List the rules, their levels and their origins.")
@common.json_option
def lint_command(**given: Any) -> int:
    """Check tuned tables of TunableOp, AITER, hipBLASLt, vLLM and SGLang.

    Finds rows that can never match a device, that their library skips or refuses, that contradict
    each other, or that claim what the device cannot do. TABLE is a file or a folder of tables;
    AITER's tables of one name in a folder and in its model_configs are checked as one.

    Exit codes: 0 nothing but notes, 1 an error or a warning, 2 bad usage.
    """
    args = CommandArguments(**given)
    if args.rules:
        say.out(rules_text())
        return ExitCode.YES
    if not args.tables:
        raise UsageError("name the tables: files, or folders of them")
    device = device_here() if args.device is None else device_given(args.device)
    versions = {name: given for name in _LIBRARIES if (given := getattr(args, name)) is not None}
    linted = lint_files(args.tables, device, versions, args.rule, args.ignore, each=args.each)
    if args.json:
        say.out_json(lint_json(linted))
    else:
        say.out(findings_text(linted))
    return ExitCode.of(not linted.fails)


_NOTHING = (
    "nothing in these files asks a tuned table for anything: docs/tables.md says which lines do, "
    "and how a program is made to print them"
)


@click.command()
@click.argument("paths", metavar="PATH...", type=common.FILE, nargs=-1, required=True)
@click.option(
    "tables",
    "--table",
    type=common.FILE,
    multiple=True,
    metavar="PATH",
    help="A file or folder to read as tuned tables only (repeatable).",
)
@click.option(
    "--device",
    metavar="DEVICE",
    help="The program's device: gfx942:304, gfx942 or MI300X (default: from the log).",
)
@click.option("--missed", is_flag=True, help="List only what is missing.")
@click.option(
    "--write",
    type=common.FILE,
    metavar="FILE",
    help="Write what is missing as an untuned list of its tuner, most requested first.",
)
@click.option("--force", is_flag=True, help="Replace FILE.")
@common.json_option
def cover_command(**given: Any) -> int:
    """List what a program missed in tuned tables, how often, and what ran instead.

    PATH is a log, an untuned list, a tuned table or a folder of tables; its content decides. Reads
    the tables of TunableOp, AITER, hipBLASLt, vLLM and SGLang. Exit code 1 if something is not
    covered.
    """
    args = CommandArguments(**given)
    if args.force and args.write is None:
        raise UsageError("--force is for --write")
    device = device_given(args.device) if args.device else None
    files = read_files(args.paths, args.tables)
    for line in files.unread:
        say.err(line)
    coverage = cover(files.asked, files.tables, device)
    if not coverage.rows and not coverage.nameless:
        raise NoSuchSource(_NOTHING)
    written = [] if args.write is None else write_untuned(coverage.rows, args.write, args.force)
    if args.json:
        value = cover_json(coverage)
        say.out_json({**value, "written": [_written_json(one) for one in written]})
    else:
        _print_coverage(args, coverage, len(files.tables), written)
    return ExitCode.of(coverage.complete)


def _print_coverage(
    args: CommandArguments, coverage: Coverage, tables: int, written: list[Written]
) -> None:
    rows = tuple(row for row in coverage.rows if row.lacking or not args.missed)
    if rows:
        say.out(cover_text(coverage, rows))
    say.out(cover_sum(coverage))
    for note in cover_notes(coverage, tables):
        say.out(f"note: {note}")
    for one in written:
        products = counted(one.untuned.rows, "product")
        say.out(plain(f"wrote {one.path}: {products} for {TUNERS[one.untuned.tuner]}"))
        if one.run:
            say.out(plain(f"  tune: {one.run}"))
    if args.write is not None:
        for untuned in untuned_lists(coverage.rows):
            for reason, count in untuned.left_out:
                say.err(f"not written: {count} × {TUNERS[untuned.tuner]}, {reason}")


def _written_json(written: Written) -> dict[str, Any]:
    untuned = written.untuned
    return {
        "path": str(written.path),
        "tuner": untuned.tuner,
        "rows": untuned.rows,
        "run": written.run or None,
        "left_out": dict(untuned.left_out),
    }
