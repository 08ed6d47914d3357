"""`rocm-tui compare [A [B]]`: what became slower from A to B, or the report of one job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import click

from backend.counted import counted
from backend.model.session import Fault
from rocm_tui import say
from rocm_tui.actions.sources import read_part
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.compare.comparison import compare, may_be_slower, regressions
from rocm_tui.compare.tables import TableComparison, are_tables, compare_tables
from rocm_tui.compare.types import Comparison, TuningSet
from rocm_tui.errors import NoSuchSource, UsageError
from rocm_tui.render import compare as compare_text
from rocm_tui.render import report as report_text
from rocm_tui.render.compare import ComparisonJson, TableComparisonJson, regression_lines
from rocm_tui.render.problems import trouble_lines
from rocm_tui.render.report import ReportJson
from rocm_tui.report.job import report

Form = Literal["text", "json", "markdown"]


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
def compare_command(
    a: str | None,
    b: str | None,
    also_a: Sequence[str],
    also_b: Sequence[str],
    fail_on_regression: float | None,
    json: bool,
    markdown: bool,
    cache_dir: Path | None,
) -> int:
    """Compare the tunings of A with those of B, sorted by time lost.

    A and B are logs, caches, folders, exports of pins, - for stdin, or sessions of the cache
    directory (first letters of an id or of a log's name). Without B, report on A (default: the
    cache directory): ranks that chose differently, missing backends, the savings by tuning,
    repeated tunings.

    Exit codes: 0 yes, 1 a regression, nothing in common or no tunings, 2 bad usage.
    """
    common.require_at_most_one(json=json, markdown=markdown)
    layout = common.layout_at(cache_dir)
    form: Form = "json" if json else "markdown" if markdown else "text"
    if b is None:
        if markdown or fail_on_regression is not None or also_b:
            raise UsageError("--markdown, --fail-on-regression and --also-b need two: compare A B")
        _report(_checked("A", read_part(layout, "A", a or str(layout.root), also_a)), form)
        return ExitCode.YES
    assert a is not None
    read_a = read_part(layout, "A", a, also_a)
    part_a = _checked("A", read_a)
    read_b = read_part(layout, "B", b, also_b)
    part_b = _checked("B", read_b)
    if are_tables(part_a, part_b):
        _check_whole((*read_a[1], *read_b[1]))
        return _compare_tables(compare_tables(part_a, part_b), form, fail_on_regression)
    return _compare(compare(part_a, part_b), form, fail_on_regression)


def _compare(comparison: Comparison, form: Form, percent: float | None) -> int:
    """Print a comparison. Exit with 1 if something is slower by more than `percent`."""
    if form == "json":
        say.out_json(ComparisonJson.of(comparison))
    elif form == "markdown":
        say.out(compare_text.markdown(comparison))
    else:
        say.out(compare_text.text(comparison))
    slower = [] if percent is None else regressions(comparison, percent)
    for line in regression_lines(slower):
        say.err(f"slower by more than {percent:g} %: {line}")
    if percent is not None and (unclear := may_be_slower(comparison, percent)):
        problems = counted(unclear, "problem")
        say.err(f"unclear whether {problems} became slower by more than {percent:g} %")
    if percent is not None and not comparison.common:
        say.err("A and B have no tuning in common")
    return ExitCode.of(bool(comparison.common) and not slower)


def _check_whole(problems: Iterable[Fault]) -> None:
    """Raises NoSuchSource: an entry that was not read would count as one that the other lacks."""
    from rocm_tui.ingest.formats.tuned_table import MORE, MOST_ROWS  # is loaded with tables

    if any(problem.what == MORE for problem in problems):
        raise NoSuchSource(
            f"at most {MOST_ROWS:,} entries of A and of B can be compared, there are more: "
            "name fewer tables"
        )


def _compare_tables(comparison: TableComparison, form: Form, percent: float | None) -> int:
    if form == "json":
        say.out_json(TableComparisonJson.of(comparison))
    elif form == "markdown":
        say.out(compare_text.tables_markdown(comparison))
    else:
        say.out(compare_text.tables_text(comparison))
    slower = [] if percent is None else list(compare_text.slower_lines(comparison, percent))
    for line in slower:
        say.err(f"slower by more than {percent:g} %: {line}")
    return ExitCode.of(bool(comparison.common) and not slower)


def _report(part: TuningSet, form: Form) -> None:
    answers = report(part)
    if form == "json":
        say.out_json(ReportJson.of(answers))
    else:
        say.out(report_text.text(answers))


def _checked(name: str, read: tuple[TuningSet, Sequence[Fault]]) -> TuningSet:
    """Print what could not be read. Raises NoSuchSource if the sources have no tuning at all."""
    part, problems = read
    for line in trouble_lines(problems):
        say.err(line)
    if not part.rows:
        raise NoSuchSource(f"{name}: no tuning in {part.label}")
    return part
