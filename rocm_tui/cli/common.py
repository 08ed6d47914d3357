"""What several commands share: options, the cache dir, what could not be read."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from backend.records import Problem
from backend.store.paths import Layout, cache_dir
from rocm_tui import say
from rocm_tui.session.troubles import troubles


def add_cache_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cache-dir",
        type=Path,
        metavar="DIR",
        help="Inductor's cache dir (default: where Inductor itself would look)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON on stdout")


def add_from(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--from",
        dest="sources",
        action="append",
        default=[],
        metavar="PATH",
        help="also read this log, cache file or folder to find the ID (may be repeated)",
    )


def add_paths(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="file, folder, or - for stdin")


def add_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help="a tuning's id, or its first digits")


def add_python(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--python",
        metavar="EXE",
        help="the Python that has torch (default: ours, else $VIRTUAL_ENV's, else python3)",
    )


def layout_of(args: argparse.Namespace) -> Layout:
    return Layout(args.cache_dir.absolute() if args.cache_dir else cache_dir())


def print_problems(problems: Iterable[Problem]) -> None:
    for trouble in troubles(problems):
        say.err(trouble.line())
