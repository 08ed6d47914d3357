"""Untuned lists of TunableOp, and logs that say what it missed: PyTorch's own tuner is offered all
of one."""

from __future__ import annotations

import os
from asyncio import to_thread
from dataclasses import dataclass, replace
from pathlib import Path

from backend.counted import counted
from backend.disk.layout import Layout
from backend.errors import StoreError
from rocm_tui.actions.missed import Missed
from rocm_tui.actions.tunableop import Outcome, Wanted, tune_products, wanted_in
from rocm_tui.environment import device_env, lane
from rocm_tui.errors import RocmTuiError, UsageError
from rocm_tui.harmless import plain
from rocm_tui.ingest.asked.tunableop import TUNER
from rocm_tui.jobs.queue import Job, Order, QueueRun
from rocm_tui.session.model import Row
from rocm_tui.ssh.address import is_far
from rocm_tui.tui.devices import may_have_gpus
from rocm_tui.tui.host import Host
from rocm_tui.tui.screens.dialogs import ConfirmScreen

_NO_GPU = "no GPU is seen here"
_RESULTS = "tunableop_results0.csv"


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
    asked = entry is not None and entry.tuner == TUNER and not row.tuning.choices
    if not asked or is_far(sources[0]):
        return None
    place = Path(sources[0])
    named = "untuned" in place.name
    results = place.with_name(place.name.replace("untuned", "results") if named else _RESULTS)
    return UntunedList(str(place), str(results), "" if may_have_gpus() else _NO_GPU)


async def ask_to_tune_missed(host: Host, missed: Missed) -> Job | None:
    """Say what of a log's misses TunableOp can tune; the job, if the person says yes."""
    if host.asking:
        return None
    place = Path(missed.path)
    results = str(place.with_name(_RESULTS))
    command = host.shell.tune_list(missed.path, results, None, None)
    try:
        wanted = await to_thread(wanted_in, [place])
    except (RocmTuiError, StoreError, OSError) as error:
        host.refuse(str(error))
        return None
    if why := _why_none(missed, wanted, command):
        host.refuse(why)
        return None
    if host.asking:
        return None
    products = counted(len(wanted.lines), "product")
    lines = [f"All that {plain(place.name)} says it missed, each in turn, on a GPU."]
    lines += [f"{count:,} left out: {reason}" for reason, count in wanted.left_out]
    lines += ["What other tuners missed there is not tuned by it."] * bool(wanted.others)
    lines.append(f"What is fastest is put into {plain(results)}.")
    title = f"Let TunableOp tune {products}"
    question = ConfirmScreen(title, "Start", lines, command=lambda note: command)
    if await host.push_screen_wait(question) is None:
        return None
    order = list_order(UntunedList(missed.path, results), None, None, "", host.layout)
    return host.jobs.submit(replace(order, command=command))


def _why_none(missed: Missed, wanted: Wanted, command: str) -> str:
    """Why nothing of it is tuned here, and what to run; empty where something is."""
    if not wanted.lines:
        left = "".join(f" ({count:,} {reason})" for reason, count in wanted.left_out[:1])
        return plain(
            f"TunableOp can tune none of what {Path(missed.path).name} missed{left}: "
            f"`{missed.command} --write LIST` writes what its own tuner takes"
        )
    return "" if may_have_gpus() else f"{_NO_GPU}, and TunableOp tunes on GPUs; there: `{command}`"


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
