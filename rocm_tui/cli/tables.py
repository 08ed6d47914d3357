"""`rocm-tui lint` and `cover`: the tuned tables of other tuners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from backend.counted import counted
from rocm_tui import say
from rocm_tui.actions.cover import Written, read_files, write_untuned
from rocm_tui.actions.lint import device_here, lint_files
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.errors import NoSuchSource, UsageError
from rocm_tui.harmless import plain
from rocm_tui.json_output import fill
from rocm_tui.render.cover import (
    TUNERS,
    CoverJson,
    WrittenJson,
    cover_notes,
    cover_sum,
    cover_text,
)
from rocm_tui.render.entries import LintJson, findings_text, rules_text
from rocm_tui.tables.coverage import Coverage, Covered, cover
from rocm_tui.tables.device import device_given
from rocm_tui.tables.lint import RULE_IDS
from rocm_tui.tables.untuned import untuned_lists


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
@common.repeatable(
    "--rule", metavar="RULE", help="Check only this rule", type=click.Choice(RULE_IDS)
)
@common.repeatable("--ignore", metavar="RULE", help="Skip this rule", type=click.Choice(RULE_IDS))
@common.flag("--each", "List each row instead of grouping equal findings.")
@common.flag("--rules", "List the rules, their levels and their origins.")
@common.json_option
def lint_command(
    tables: Sequence[str],
    device: str | None,
    rule: Sequence[str],
    ignore: Sequence[str],
    each: bool,
    rules: bool,
    json: bool,
    **libraries: str | None,
) -> int:
    """Check tuned tables of TunableOp, AITER, hipBLASLt, vLLM and SGLang.

    Finds rows that can never match a device, that their library skips or refuses, that contradict
    each other, or that claim what the device cannot do. TABLE is a file or a folder of tables;
    AITER's tables of one name in a folder and in its model_configs are checked as one.

    Exit codes: 0 nothing but notes, 1 an error or a warning, 2 bad usage.

    Example: rocm-tui lint tunableop_results0.csv --device MI300X
    """
    common.require_at_most_one(rules=rules, json=json)
    if rules:
        say.out(rules_text())
        return ExitCode.YES
    if not tables:
        raise UsageError("name the tables: files, or folders of them")
    target = device_here() if device is None else device_given(device)
    versions = {name: version for name, version in libraries.items() if version is not None}
    linted = lint_files(tables, target, versions, rule, ignore, each=each)
    common.print_result(linted, json, LintJson.of, findings_text)
    return ExitCode.of(not linted.fails)


_NOTHING = (
    "nothing in these files asks a tuned table for anything: docs/tables.md says which lines do, "
    "and how a program is made to print them"
)


@click.command()
@click.argument("paths", metavar="PATH...", type=common.FILE, nargs=-1, required=True)
@common.repeatable(
    "tables",
    "--table",
    metavar="PATH",
    help="Read this file or folder as tuned tables only",
    type=common.FILE,
)
@click.option(
    "--device",
    metavar="DEVICE",
    help="Assume this device: gfx942:304, gfx942 or MI300X (default: from the log).",
)
@common.flag("--missed", "List only what is missing.")
@click.option(
    "--write",
    type=common.FILE,
    metavar="FILE",
    help="Write an untuned list of what is missing, most requested first.",
)
@common.flag("--force", "With --write, replace FILE.")
@common.json_option
def cover_command(
    paths: Sequence[Path],
    tables: Sequence[Path],
    device: str | None,
    missed: bool,
    write: Path | None,
    force: bool,
    json: bool,
) -> int:
    """List what a program missed in tuned tables, how often, and what ran instead.

    PATH is a log, an untuned list, a tuned table or a folder of tables; its content decides. Reads
    the tables of TunableOp, AITER, hipBLASLt, vLLM and SGLang. Exit code 1 if something is not
    covered.

    Example: rocm-tui cover server.log tuned_gemm.csv --missed
    """
    if force and write is None:
        raise UsageError("--force is for --write")
    target = device_given(device) if device else None
    files = read_files(paths, tables)
    say.err(*files.unread)
    coverage = cover(files.asked, files.tables, target)
    if not coverage.rows and not coverage.nameless:
        raise NoSuchSource(_NOTHING)
    written = [] if write is None else write_untuned(coverage.rows, write, force)
    if json:
        say.out_json(
            CoverJson.of(coverage, _shown(coverage, missed), list(map(_written_json, written)))
        )
    else:
        _print_coverage(coverage, len(files.tables), _shown(coverage, missed))
        for each in written:
            products = counted(each.untuned.rows, "product")
            say.out(plain(f"wrote {each.path}: {products} for {TUNERS[each.untuned.tuner]}"))
            if each.run:
                say.out(plain(f"  tune: {each.run}"))
        for untuned in () if write is None else untuned_lists(coverage.rows):
            for reason, count in untuned.left_out:
                say.err(f"not written: {count} × {TUNERS[untuned.tuner]}, {reason}")
    return ExitCode.of(coverage.complete)


def _shown(coverage: Coverage, missed: bool) -> tuple[Covered, ...]:
    return tuple(row for row in coverage.rows if row.lacking or not missed)


def _print_coverage(coverage: Coverage, tables: int, rows: tuple[Covered, ...]) -> None:
    if rows:
        say.out(cover_text(coverage, rows))
    say.out(cover_sum(coverage))
    for note in cover_notes(coverage, tables):
        say.out(f"note: {note}")


def _written_json(written: Written) -> WrittenJson:
    untuned = written.untuned
    run, left_out = written.run or None, dict(untuned.left_out)
    return fill(WrittenJson, untuned, path=str(written.path), run=run, left_out=left_out)
