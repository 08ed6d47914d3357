"""`rocm-tui compare [A [B]]`: what became slower from A to B, or the report of one job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from backend.model.session import Fault
from rocm_tui import say
from rocm_tui.actions.sources import read_part
from rocm_tui.cli import common
from rocm_tui.cli.common import CommandArguments, ExitCode
from rocm_tui.compare.comparison import compare, regressions
from rocm_tui.compare.tables import TableComparison, are_tables, compare_tables
from rocm_tui.compare.types import Comparison, TuningSet
from rocm_tui.errors import NoSuchSource, UsageError
from rocm_tui.render import compare as compare_text
from rocm_tui.render import report as report_text
from rocm_tui.render.compare import comparison_json, regression_lines
from rocm_tui.render.problems import trouble_lines
from rocm_tui.render.report import report_json
from rocm_tui.report.job import report


class PercentType(click.ParamType[float]):
    """A percentage, with or without its sign."""

    name = "percentage"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            percent = float(str(value).removesuffix("%"))
        except ValueError:
            percent = -1.0
        if not 0 <= percent < 1e6:
            self.fail(f"{value!r} is not a percentage, such as 10.", param, ctx)
        return percent


@click.command()
@click.argument("a", metavar="[A]", type=common.SOURCE, required=False)
@click.argument("b", metavar="[B]", type=common.SOURCE, required=False)
@click.option(
    "--also-a",
    type=common.SOURCE,
    multiple=True,
    metavar="PATH",
    help="Another source of A (repeatable).",
)
@click.option(
    "--also-b",
    type=common.SOURCE,
    multiple=True,
    metavar="PATH",
    help="Another source of B (repeatable).",
)
@click.option(
    "--fail-on-regression",
    type=PercentType(),
    metavar="PCT",
    help="Exit with 1 and list what is slower by more than PCT per cent.",
)
@common.json_option
@click.option("--markdown", is_flag=True, help="Print a table for a pull request.")
@common.cache_dir_option
def compare_command(**given: Any) -> int:
    """Compare the tunings of A with those of B, sorted by time lost.

    A and B are logs, caches, folders, exports of pins, - for stdin, or sessions of the cache
    directory (first letters of an id or of a log's name). Without B, report on A (default: the
    cache directory): ranks that chose differently, missing backends, the savings by tuning,
    repeated tunings.

    Exit codes: 0 yes, 1 a regression, nothing in common or no tunings, 2 bad usage.
    """
    args = CommandArguments(**given)
    common.require_at_most_one(json=args.json, markdown=args.markdown)
    return _report(args) if args.b is None else _compare(args)


def _compare(args: CommandArguments) -> int:
    layout = common.layout_of(args)
    in_a = read_part(layout, "A", args.a, args.also_a)
    a = _told("A", in_a)
    in_b = read_part(layout, "B", args.b, args.also_b)
    b = _told("B", in_b)
    if are_tables(a, b):
        _check_whole((*in_a[1], *in_b[1]))
        return _compare_tables(compare_tables(a, b), args)
    comparison = compare(a, b)
    if args.json:
        say.out_json(comparison_json(comparison))
    elif args.markdown:
        say.out(compare_text.markdown(comparison))
    else:
        say.out(compare_text.text(comparison))
    if args.fail_on_regression is not None and _fails(comparison, args.fail_on_regression):
        return ExitCode.NO
    return ExitCode.of(bool(comparison.common))


def _check_whole(problems: Iterable[Fault]) -> None:
    """Raises NoSuchSource: an entry that was not read would count as one that the other lacks."""
    from rocm_tui.ingest.formats.tuned_table import MORE, MOST_ROWS  # is loaded with tables

    if any(problem.what == MORE for problem in problems):
        raise NoSuchSource(
            f"at most {MOST_ROWS:,} entries of A and of B can be compared, there are more: "
            "name fewer tables"
        )


def _compare_tables(comparison: TableComparison, args: CommandArguments) -> int:
    if args.json:
        say.out_json(compare_text.tables_json(comparison))
    else:
        say.out(
            (compare_text.tables_markdown if args.markdown else compare_text.tables_text)(
                comparison
            )
        )
    per_cent = args.fail_on_regression
    slower = [] if per_cent is None else list(compare_text.slower_lines(comparison, per_cent))
    for line in slower:
        say.err(f"slower by more than {per_cent:g} %: {line}")
    return ExitCode.of(bool(comparison.common) and not slower)


def _fails(comparison: Comparison, per_cent: float) -> bool:
    """Whether something is too slow; says what on stderr."""
    slower = regressions(comparison, per_cent)
    for line in regression_lines(slower):
        say.err(f"slower by more than {per_cent:g} %: {line}")
    if not comparison.common:
        say.err("A and B have no tuning in common")
    return bool(slower)


def _report(args: CommandArguments) -> int:
    if args.markdown or args.fail_on_regression is not None or args.also_b:
        raise UsageError("--markdown, --fail-on-regression and --also-b need two: compare A B")
    layout = common.layout_of(args)
    a = str(layout.root) if args.a is None else args.a
    answers = report(_told("A", read_part(layout, "A", a, args.also_a)))
    if args.json:
        say.out_json(report_json(answers))
    else:
        say.out(report_text.text(answers))
    return ExitCode.YES


def _told(name: str, read: tuple[TuningSet, Sequence[Fault]]) -> TuningSet:
    """Says what could not be read. Raises NoSuchSource if the sources tell of no tuning at all."""
    part, problems = read
    for line in trouble_lines(problems):
        say.err(line)
    if not part.rows:
        raise NoSuchSource(f"{name}: no tuning in {part.label}")
    return part
