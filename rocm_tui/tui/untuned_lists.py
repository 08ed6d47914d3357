"""Untuned lists of TunableOp: an entry of one is offered to PyTorch's own tuner, with its list."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from backend.counted import counted
from backend.disk.layout import Layout
from rocm_tui.actions.tunableop import Outcome, tune_products, wanted_in
from rocm_tui.environment import device_env, lane
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.ingest.lookups import TUNABLEOP
from rocm_tui.jobs.queue import Order, QueueRun
from rocm_tui.session.model import Row
from rocm_tui.tui.devices import may_have_gpus

NO_GPU = "no GPU is seen here"
RESULTS = "tunableop_results0.csv"


@dataclass(frozen=True, slots=True)
class UntunedList:
    """The list at `path`, the table of `results` beside it, and why it cannot be tuned here."""

    path: str
    results: str
    why_not: str = ""

    @property
    def label(self) -> str:
        """What is offered, and why it is not."""
        into = plain(Path(self.results).name)
        return f"TunableOp instead: {self.why_not or f'the whole list, into {into}'}"


def untuned_list_of(row: Row) -> UntunedList | None:
    """The list that this row is an entry of; None for all else."""
    entry, sources = row.tuning.entry, row.tuning.sources
    asked = entry is not None and entry.tuner == TUNABLEOP and not row.tuning.choices
    if not asked:
        return None
    place = Path(sources[0])
    named = "untuned" in place.name
    results = place.with_name(place.name.replace("untuned", "results") if named else RESULTS)
    return UntunedList(str(place), str(results), "" if may_have_gpus() else NO_GPU)


def list_order(
    untuned: UntunedList, device: str | None, budget: float | None, id: str, layout: Layout
) -> Order:
    """The work of tuning all of it, for the queue. Raises UsageError."""
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
        return _told(outcome, untuned)

    return Order(
        kind="tune",
        title=f"TunableOp, {plain(Path(untuned.path).name)}",
        lane=lane(device, "cuda"),
        work=work,
        env=device_env(os.environ, device),
        tuning=id,
    )


def _told(outcome: Outcome, untuned: UntunedList) -> str:
    parts = [f"{counted(len(outcome.rows), 'row')} put into {plain(untuned.results)}"]
    parts += [f"{outcome.there:,} had one already"] * bool(outcome.there)
    parts += [f"{len(outcome.failed):,} not tuned"] * bool(outcome.failed)
    parts += [f"{outcome.skipped:,} left out, the budget is spent"] * bool(outcome.skipped)
    return "; ".join(parts)
