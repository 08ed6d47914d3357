"""Let PyTorch's own TunableOp tune: an untuned list, or the products that a log says it missed."""

from __future__ import annotations

import os
from asyncio import to_thread
from pathlib import Path

from backend.counted import counted
from backend.disk.layout import Layout
from rocm_tui.actions.cover import Missed
from rocm_tui.actions.tunableop import Outcome, WantedProducts, tune_products, wanted_in
from rocm_tui.environment import device_env, lane
from rocm_tui.errors import RocmTuiError, UsageError
from rocm_tui.harmless import plain
from rocm_tui.ingest.lookups import TUNABLEOP
from rocm_tui.jobs.queue import Order, QueueRun
from rocm_tui.session.model import Row
from rocm_tui.tui.base import BaseApp
from rocm_tui.tui.screens.dialogs import UntunedList, confirm
from rocm_tui.tui.widgets.device_strip import may_have_gpus

NO_GPU = "no GPU is seen here"
RESULTS = "tunableop_results0.csv"


def untuned_list_of(row: Row) -> UntunedList | None:
    """Return the list that this row is an entry of, or None."""
    entry, sources = row.tuning.entry, row.tuning.sources
    asked = entry is not None and entry.tuner == TUNABLEOP and not row.tuning.choices
    if not asked:
        return None
    path = Path(sources[0])
    named = "untuned" in path.name
    results = path.with_name(path.name.replace("untuned", "results") if named else RESULTS)
    return UntunedList(str(path), str(results), "" if may_have_gpus() else NO_GPU)


def list_order(
    untuned: UntunedList, device: str | None, budget: float | None, id: str, layout: Layout
) -> Order:
    """Return the job that tunes the whole list. Raises UsageError."""
    if device == "cpu":
        raise UsageError("TunableOp tunes on GPUs alone; the device is a GPU's index")

    def work(run: QueueRun) -> str:
        outcome = Outcome()
        lines = wanted_in([Path(untuned.path)]).lines
        results = Path(untuned.results)
        tune_products(
            run, layout, lines, results, outcome, budget=budget, begins=lambda *at: run.tell(*at)
        )
        if outcome.failed and not outcome.rows:
            raise next(iter(outcome.failed.values()))
        return _summary(outcome, untuned)

    return Order(
        kind="tune",
        title=f"TunableOp, {plain(Path(untuned.path).name)}",
        lane=lane(device, "cuda"),
        work=work,
        env=device_env(os.environ, device),
        tuning=id,
    )


def _summary(outcome: Outcome, untuned: UntunedList) -> str:
    parts = [f"{counted(len(outcome.rows), 'row')} put into {plain(untuned.results)}"]
    parts += [f"{outcome.there:,} had one already"] * bool(outcome.there)
    parts += [f"{len(outcome.failed):,} not tuned"] * bool(outcome.failed)
    parts += [f"{outcome.skipped:,} left out, the budget is spent"] * bool(outcome.skipped)
    return "; ".join(parts)


async def tune_missed(app: BaseApp, missed: Missed) -> None:
    """Show which of a log's misses TunableOp can tune, and queue them if the person agrees."""
    if app.asking:
        return
    path = Path(missed.path)
    results = str(path.with_name(RESULTS))
    command = app.shell.tune_list(missed.path, results, None, None)
    wanted = await to_thread(wanted_in, [path])
    if why := _why_none(missed, wanted, command):
        raise RocmTuiError(why)
    lines = [f"Tunes every product that {plain(path.name)} says it missed, one by one, on a GPU."]
    lines += [f"{count:,} left out: {reason}" for reason, count in wanted.left_out]
    lines += ["Products that other tuners missed are left out."] * bool(wanted.others)
    lines.append(f"The fastest solutions are written to {plain(results)}.")
    title = f"Let TunableOp tune {counted(len(wanted.lines), 'product')}"
    if await confirm(app, title, "Start", lines, command):
        order = list_order(UntunedList(missed.path, results), None, None, "", app.layout)
        app.queue(order, command)


def _why_none(missed: Missed, wanted: WantedProducts, command: str) -> str:
    """Return why no product can be tuned here, and what to run; empty if one can."""
    if not wanted.lines:
        left = "".join(f" ({count:,} {reason})" for reason, count in wanted.left_out[:1])
        return plain(
            f"TunableOp can tune none of what {Path(missed.path).name} missed{left}: "
            f"`{missed.command} --write LIST` writes what its own tuner takes"
        )
    if may_have_gpus():
        return ""
    return f"{NO_GPU}, and TunableOp tunes on GPUs; there: `{command}`"
