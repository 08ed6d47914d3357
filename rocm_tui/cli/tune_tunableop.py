"""`rocm-tui tune --tunableop`: PyTorch's TunableOp tunes products, into its own table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from backend.counted import counted
from backend.disk.layout import Layout
from rocm_tui import say
from rocm_tui.actions.tunableop import ELSEWHERE, Outcome, WantedProducts, tune_products, wanted_in
from rocm_tui.cli.common import CommandArguments, ExitCode, options_given, print_list
from rocm_tui.cli.work import Work, with_log
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import check_seconds
from rocm_tui.json_output import Document, JsonObject, fill
from rocm_tui.render.cover import TUNERS

_INDUCTORS = (
    "dtype strides precision all sources backends search_space templates all_devices fleet missing "
    "repeat device_class compile_only"
)
"""Parameters of Inductor's tuning."""


def tune_tunableop(args: CommandArguments, layout: Layout) -> int:
    """Raises UsageError, RocmTuiErrors and StoreErrors."""
    if options := options_given(_INDUCTORS):
        raise UsageError(f"{options[0]} is for Inductor's tuning; leave out --tunableop or it")
    paths = [Path(word) for word in (*args.words, *args.from_log)]
    if not paths:
        raise UsageError("say which untuned lists: tune --tunableop -o RESULTS.csv UNTUNED.csv...")
    if args.device == "cpu":
        raise UsageError("TunableOp tunes on GPUs alone; --device is a GPU's index")
    if args.output is None and not args.dry_run:
        raise UsageError("say which table gets the rows: -o RESULTS.csv")
    budget = None if args.budget is None else check_seconds(args.budget, "--budget")
    wanted = wanted_in(paths)
    _tell_others(wanted)
    if args.dry_run or not wanted.lines:
        if wanted.lines and not args.json:
            say.err(f"PyTorch alone tunes them so: {ELSEWHERE}")
        return print_list(ProductsToTuneJson(list(wanted.lines)), wanted.lines, args.json)
    work = Work(layout, args.python, args.device)
    outcome = Outcome()

    def begins(line: str, done: int, total: int) -> None:
        work.line.title = f"{done + 1} of {total}"
        work.line.part(done, total)

    try:
        with work.line.during("TunableOp"):
            tune_products(
                work,
                layout,
                wanted.lines,
                args.output,
                outcome,
                force=args.force,
                budget=budget,
                begins=begins,
            )
    finally:
        _tell(outcome, args.output, args.json)
    return ExitCode.of(not outcome.failed and not outcome.skipped)


def _tell_others(wanted: WantedProducts) -> None:
    for reason, count in wanted.left_out:
        say.err(plain(f"left out: {counted(count, 'product')}, {reason}"))
    for untuned in wanted.others:
        who = f"{counted(untuned.rows, 'entry', 'entries')} of {TUNERS[untuned.tuner]}"
        run = f", and then: {untuned.run.replace('{file}', 'LIST')}" if untuned.run else ""
        say.err(
            plain(f"not tuned: {who}; write its list with rocm-tui cover FILE --write LIST{run}")
        )


def _tell(outcome: Outcome, results: Path, as_json: bool) -> None:
    """Print the rows that are in the file now, also after a failure."""
    if as_json:
        say.out_json(TunableOpJson.of(outcome, results))
        return
    for row in outcome.rows:
        say.out(plain(f"{row.op},{row.params}  {row.solution}  {row.ms:g} ms"))
    for line, error in outcome.failed.items():
        say.err(plain(f"{line} was not tuned: {with_log(error)}"))
    if outcome.there:
        there = counted(outcome.there, "product")
        say.err(plain(f"{there} had a row in {results} already (--force tunes again)"))
    if outcome.skipped:
        say.err(f"{counted(outcome.skipped, 'product')} left out: the budget is spent")
    if outcome.rows:
        say.out(plain(f"{counted(len(outcome.rows), 'row')} put into {results}"))


class ProductsToTuneJson(Document, tag="rocm-tui/tune-tunableop-products/1"):
    products: list[str]


class FailedProductJson(JsonObject):
    product: str
    reason: str


class TunableOpJson(Document, tag="rocm-tui/tune-tunableop/1"):
    """The rows that TunableOp tuned into a table, and the products without one."""

    path: str
    rows: list[dict[str, Any]]
    failed: list[FailedProductJson]
    there: int
    skipped: int

    @classmethod
    def of(cls, outcome: Outcome, results: Path) -> TunableOpJson:
        return fill(
            cls,
            outcome,
            path=str(results),
            rows=[row._asdict() for row in outcome.rows],
            failed=[
                FailedProductJson(product=line, reason=with_log(error))
                for line, error in outcome.failed.items()
            ],
        )
