"""`rocm-tui cover LOG... TABLE...`: what a program asked tuned tables for and missed, and the list
of what to tune."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from backend.counted import counted
from rocm_tui import say
from rocm_tui.actions.cover import Written, read_files, write_untuned
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.errors import NoSuchSource, UsageError
from rocm_tui.harmless import plain
from rocm_tui.render.cover import (
    TUNERS,
    cover_json,
    cover_notes,
    cover_sum,
    cover_text,
)
from rocm_tui.tables.coverage import Coverage, cover
from rocm_tui.tables.device import device_given
from rocm_tui.tables.untuned import untuned_lists

_NOTHING = (
    "nothing in these files asks a tuned table for anything: docs/tables.md says which lines do, "
    "and how a program is made to print them"
)


def add_cover(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Read a program's logs, or untuned lists, for what it asked the tables of TunableOp, "
        "AITER, hipBLASLt, vLLM and SGLang for: what was missed, how often, what ran instead. "
        "Tuned tables among the files say what they would have. Exit code 0 if all is covered, 1 "
        "if something is not."
    )
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="a log, an untuned list, a tuned table or a folder of tables: told by their content",
    )
    parser.add_argument(
        "--table",
        dest="tables",
        action="append",
        default=[],
        type=Path,
        metavar="PATH",
        help="a tuned table, or a folder of them, and nothing else (may be repeated)",
    )
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="the device that asks: gfx942:304, gfx942, or MI300X (default: what the log tells)",
    )
    parser.add_argument("--missed", action="store_true", help="list only what is lacking")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="FILE",
        help="write what is lacking as the tuner's own untuned list, the most asked for first",
    )
    parser.add_argument("--force", action="store_true", help="replace FILE")
    common.add_arguments(parser, "--json")


def do_cover(args: argparse.Namespace) -> ExitCode:
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
        _say(args, coverage, len(files.tables), written)
    return ExitCode.of(coverage.complete)


def _say(args: argparse.Namespace, coverage: Coverage, tables: int, written: list[Written]) -> None:
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
