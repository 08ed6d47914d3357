"""`rocm-tui compare [A [B]]`: what became slower from A to B, or the report of one job."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rocm_tui import say
from rocm_tui.commands import common

if TYPE_CHECKING:
    from backend.store.paths import Layout
    from rocm_tui.compare.types import Comparison, Part
    from rocm_tui.session.model import Model


def add(commands: common.Subparsers) -> None:
    parser = commands.add_parser(
        "compare",
        help="what became slower from A to B; with one or none, the report of a job",
        description="Compare the tunings of A with those of B, sorted by time lost. Each is a log, "
        "a cache, a folder, an export of pins, or a session of the cache dir by the first letters "
        "of its id or of its log's name. With A alone, or nothing (the cache dir): who chose "
        "differently, which backends were asked for and are missing, what tuning saves, what was "
        "tuned more than once.",
        epilog="exit codes: 0 yes, 1 a regression, or nothing in common; 2 bad usage, or a source "
        "without tunings",
    )
    parser.add_argument("a", metavar="A", nargs="?", help="file, folder, session, or - for stdin")
    parser.add_argument("b", metavar="B", nargs="?", help="what to compare it with")
    for name in ("a", "b"):
        parser.add_argument(
            f"--also-{name}",
            action="append",
            default=[],
            metavar="PATH",
            help=f"another source of {name.upper()} (may be repeated)",
        )
    parser.add_argument(
        "--fail-on-regression",
        type=_per_cent,
        metavar="PCT",
        help="exit with 1 if something is slower by more than so many per cent, and name it",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON on stdout")
    form.add_argument("--markdown", action="store_true", help="print a table for a pull request")
    common.add_cache_dir(parser)


def _per_cent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is no percentage, such as 10")
    return value


def run(args: argparse.Namespace) -> int:
    from rocm_tui.collector import no_collector

    with no_collector():
        return _run(args)


def _run(args: argparse.Namespace) -> int:
    from rocm_tui.errors import UsageError

    layout = common.layout_of(args)
    if args.b is None:
        if args.markdown or args.fail_on_regression is not None or args.also_b:
            raise UsageError("--markdown, --fail-on-regression and --also-b need two: compare A B")
        return _report(args, layout)
    from rocm_tui.compare.comparison import compare

    a, b = (
        _load(layout, name, text, also)
        for name, text, also in (("A", args.a, args.also_a), ("B", args.b, args.also_b))
    )
    comparison = compare(a, b)
    _print(comparison, args)
    if args.fail_on_regression is not None and _fails(comparison, args.fail_on_regression):
        return 1
    return 0 if comparison.common else 1


def _print(comparison: Comparison, args: argparse.Namespace) -> None:
    if args.json:
        from rocm_tui.render.compare import comparison_json

        say.out_json(comparison_json(comparison))
        return
    from rocm_tui.render import compare as compare_text

    say.out(compare_text.markdown(comparison) if args.markdown else compare_text.text(comparison))


def _fails(comparison: Comparison, per_cent: float) -> bool:
    """Whether something is too slow; says what on stderr."""
    from rocm_tui.compare.comparison import regressions
    from rocm_tui.render.compare import regression_lines

    found = regressions(comparison, per_cent)
    for line in regression_lines(found):
        say.err(f"slower by more than {per_cent:g} %: {line}")
    if not comparison.common:
        say.err("A and B have no tuning in common")
    return bool(found)


def _report(args: argparse.Namespace, layout: Layout) -> int:
    from rocm_tui.report.job import report

    a = str(layout.root) if args.a is None else args.a
    found = report(_load(layout, "A", a, args.also_a))
    if args.json:
        from rocm_tui.render.report import report_json

        say.out_json(report_json(found))
    else:
        from rocm_tui.render.report import text

        say.out(text(found))
    return 0


def _load(layout: Layout, name: str, text: str, also: list[str]) -> Part:
    """What the sources, or the sessions of the cache dir, tell.

    Raises UsageError if that is no tuning at all.
    """
    from rocm_tui.compare.comparison import of_sessions, whole
    from rocm_tui.errors import UsageError
    from rocm_tui.session.find import find_sessions

    if text == "-" or Path(text).exists():
        model = _model(_home(Path(text), layout), [text, *also])
        part = whole(" + ".join([text, *also]), model)
    else:
        model = _model(layout, [str(layout.root), *also])
        ids = find_sessions(model.sessions.values(), text)
        if not ids:
            raise UsageError(
                f"{name}: {text!r} is no file, and no session of {layout.root} begins so: give the "
                "first letters of its id, or the name of its log there (HOST-PID-...)"
            )
        part = of_sessions(text, ids, model)
    common.print_problems(model)
    if not part.rows:
        raise UsageError(f"{name}: no tuning in {part.label}")
    return part


def _model(layout: Layout, paths: list[str]) -> Model:
    """What the paths tell. Exports of pins are no source to be watched, so they are read here.

    Raises ShareInvalid for an export that is damaged.
    """
    from backend.store.share import read_share
    from rocm_tui.compare.comparison import is_export, tunings
    from rocm_tui.session.model import Model

    exports = [path for path in paths if path != "-" and is_export(Path(path))]
    others = [path for path in paths if path not in exports]
    model = common.load(layout, others) if others else Model()
    for path in exports:
        model.apply(tunings(read_share(Path(path)), path))
    return model


def _home(source: Path, layout: Layout) -> Layout:
    """The cache dir whose pins a source is subject to: its own, if it is one."""
    from backend.store.paths import Layout

    if (source / "cache").is_dir() or (source / "rocm_tui").is_dir():
        return Layout(source.absolute())
    return layout
