"""`rocm-tui compare A B`: what became slower from A to B; and `report`: a summary of one job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from pathlib import Path
from typing import Any, Literal

import click

from backend.counted import counted
from backend.disk.layout import Layout
from backend.model.session import Fault
from rocm_tui import say
from rocm_tui.actions.sources import read_part
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.compare.comparison import compare, may_be_slower, regressions
from rocm_tui.compare.tables import TableComparison, are_tables, compare_tables
from rocm_tui.compare.types import Comparison, TuningSet
from rocm_tui.errors import NoSuchSource, UsageError
from rocm_tui.harmless import plain
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
@click.argument("a", metavar="A", type=common.SOURCE, required=False)
@click.argument("b", metavar="B", type=common.SOURCE, required=False)
@common.repeatable("--also-a", metavar="PATH", help="Add this source to A", type=common.SOURCE)
@common.repeatable("--also-b", metavar="PATH", help="Add this source to B", type=common.SOURCE)
@click.option(
    "--fail-on-regression",
    type=PercentType(),
    metavar="PCT",
    help="Exit with 1 and list what is slower by more than PCT per cent.",
)
@common.json_option
@common.flag("--markdown", "Print a table for a pull request.")
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

    A and B are logs, caches, folders, exports of pins, or sessions of the cache directory (first
    letters of an id or of a log's name). `-` is stdin.

    Exit codes: 0 yes, 1 a regression, nothing in common or no tunings, 2 bad usage.

    Example: rocm-tui compare old.log new.log --fail-on-regression 10
    """
    common.require_at_most_one(json=json, markdown=markdown)
    layout = common.layout_at(cache_dir)
    form: Form = "json" if json else "markdown" if markdown else "text"
    if b is None:
        if markdown or fail_on_regression is not None or also_b:
            raise UsageError("--markdown, --fail-on-regression and --also-b need two: compare A B")
        return _report(layout, a, also_a, form)  # the spelling of earlier versions
    assert a is not None
    read_a = read_part(layout, a, also_a, "A: ")
    part_a = _checked(read_a, "A: ")
    read_b = read_part(layout, b, also_b, "B: ")
    part_b = _checked(read_b, "B: ")
    if are_tables(part_a, part_b):
        _check_whole((*read_a[1], *read_b[1]))
        return _compare_tables(compare_tables(part_a, part_b), form, fail_on_regression)
    return _compare(compare(part_a, part_b), form, fail_on_regression)


def _compare(comparison: Comparison, form: Form, percent: float | None) -> int:
    """Print a comparison. Exit with 1 if something is slower by more than `percent`."""
    text = compare_text.markdown if form == "markdown" else compare_text.text
    common.print_result(comparison, form == "json", ComparisonJson.of, text)
    slower = [] if percent is None else regressions(comparison, percent)
    code = _exit_code(comparison.common, [*regression_lines(slower)], percent)
    if percent is not None and (unclear := may_be_slower(comparison, percent)):
        problems = counted(unclear, "problem")
        say.err(f"unclear whether {problems} became slower by more than {percent:g} %")
    if percent is not None and not comparison.common:
        say.err("A and B have no tuning in common")
    return code


def _compare_tables(comparison: TableComparison, form: Form, percent: float | None) -> int:
    text = compare_text.tables_markdown if form == "markdown" else compare_text.tables_text
    common.print_result(comparison, form == "json", TableComparisonJson.of, text)
    slower = [] if percent is None else list(compare_text.slower_lines(comparison, percent))
    return _exit_code(comparison.common, slower, percent)


def _exit_code(both: Sized, slower: Sequence[str], percent: float | None) -> ExitCode:
    say.err(*(f"slower by more than {percent:g} %: {line}" for line in slower))
    return ExitCode.of(bool(both) and not slower)


def _check_whole(problems: Iterable[Fault]) -> None:
    """Raises NoSuchSource: an entry that was not read would count as one that the other lacks."""
    from rocm_tui.ingest.formats.tuned_table import MORE, MOST_ROWS  # is loaded with tables

    if any(problem.what == MORE for problem in problems):
        raise NoSuchSource(
            f"at most {MOST_ROWS:,} entries of A and of B can be compared, there are more: "
            "name fewer tables"
        )


@click.command()
@common.paths_argument
@common.output_options
def report_command(paths: Sequence[str], cache_dir: Path | None, json: bool) -> int:
    """Summarise a job: ranks that differ, missing backends, savings, repeated tunings.

    PATH is a log, a cache, a folder, or a session of the cache directory (default: all of the cache
    directory). `-` is stdin. Exit code 1 if there is no tuning.

    Example: rocm-tui report train.log
    """
    form: Form = "json" if json else "text"
    return _report(common.layout_at(cache_dir), paths[0] if paths else None, paths[1:], form)


def _report(layout: Layout, path: str | None, others: Sequence[str], form: Form) -> int:
    if path is None and not layout.root.exists():
        raise _no_tuning(str(layout.root))
    part = _checked(read_part(layout, path or str(layout.root), others))
    if are_tables(part):
        raise _no_tuning(part.label)
    common.print_result(report(part), form == "json", ReportJson.of, report_text.text)
    return ExitCode.YES


def _checked(read: tuple[TuningSet, Sequence[Fault]], name: str = "") -> TuningSet:
    """Print what could not be read. Raises NoSuchSource if the sources have no tuning at all."""
    part, problems = read
    say.err(*trouble_lines(problems))
    if not part.rows:
        raise _no_tuning(part.label, name)
    return part


def _no_tuning(where: str, name: str = "") -> NoSuchSource:
    return NoSuchSource(
        f"{name}no tuning in {plain(where)}: `rocm-tui run --max-autotune -- CMD` records a program"
    )
