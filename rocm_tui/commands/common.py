"""What several commands need: options, the loaded model, its problems."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rocm_tui import say

if TYPE_CHECKING:
    from backend.store.paths import Layout
    from rocm_tui.session.model import Model, Row

Subparsers = Any  # argparse's own type for this is private


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


def add_python(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--python",
        metavar="EXE",
        help="the Python that has torch (default: ours, else $VIRTUAL_ENV's, else python3)",
    )


def layout_of(args: argparse.Namespace) -> Layout:
    from backend.store.paths import Layout, cache_dir

    return Layout(args.cache_dir.absolute() if args.cache_dir else cache_dir())


def load(layout: Layout, paths: Sequence[str]) -> Model:
    """Everything that `paths` (else the cache dir) tell, with the pins of the cache dir."""
    from backend.records import Problem
    from backend.store.errors import StoreError
    from backend.store.pins import PinStore
    from rocm_tui.collector import no_collector
    from rocm_tui.ingest.watcher import read_sources
    from rocm_tui.session.model import Model

    model = Model()
    with no_collector():
        model.apply(read_sources(list(paths) or [str(layout.root)]))
    try:
        model.set_pins(PinStore(layout).status())
    except StoreError as error:
        model.apply([Problem(str(layout.pins), str(error))])
    return model


def print_problems(model: Model) -> None:
    from rocm_tui.render.problems import troubles

    for trouble in troubles(model.problems):
        say.err(trouble.line())


def find_row(model: Model, id_: str) -> Row:
    """The tuning a person means. Raises NoSuchTuning, which names what could not be read."""
    from rocm_tui.errors import NoSuchTuning
    from rocm_tui.render.problems import Trouble
    from rocm_tui.session import find

    try:
        return find.find_row(model.rows(), id_)
    except NoSuchTuning as error:
        if not model.problems:
            raise
        first = Trouble(model.problems[0]).line()
        raise NoSuchTuning(f"{error}. Not read: {first}") from error
