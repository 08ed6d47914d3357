"""Measure again: the choices that a person marked, or those near the best, by the queue of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING

from backend.records import Choice, Tuning
from rocm_tui.actions.options import lane
from rocm_tui.errors import RocmTuiError
from rocm_tui.format import plain
from rocm_tui.job_queue import Order
from rocm_tui.job_run import RunJob
from rocm_tui.measuring import measure, measure_job, worth_measuring
from rocm_tui.session.measured_text import meaning, standing
from rocm_tui.tune_request import title
from rocm_tui.widgets.choice_lines import name_of

if TYPE_CHECKING:
    from backend.store.pins import PinStatus
    from rocm_tui.screens.program import RocmTui
    from rocm_tui.session.model import Row


def measure_row(app: RocmTui, row: Row, marked: AbstractSet[str]) -> None:
    """Put the measurement of a tuning's choices into the queue, and say so."""
    tuning = row.tuning
    pinned = row.pin.pin.hash if row.pin else None
    choices = [choice for choice in tuning.choices if name_of(choice) in marked]
    choices = choices or list(worth_measuring(tuning, pinned))
    try:
        measure_job(tuning, choices)  # what cannot be measured is said before a worker starts
    except RocmTuiError as error:
        app.notify(plain(str(error)), severity="error", markup=False, timeout=8)
        return
    job = app.jobs.submit(order(tuning, choices, row.id, row.pin))
    count = "1 choice" if len(choices) == 1 else f"{len(choices)} choices"
    begins = "waits for its device" if job.state == "queued" else "begins"
    app.notify(f"Measuring {count} of {job.title} {begins} (J).", markup=False, timeout=3)


def order(
    tuning: Tuning, choices: Sequence[Choice], id: str, pin: PinStatus | None = None
) -> Order:
    """The work of a measurement, for the queue; of a pinned tuning it tells what is in use."""

    def work(run: RunJob) -> str:
        found = measure(run, tuning, choices)
        told = standing(tuning, found)
        held = pin is not None and pin.state != "orphaned"
        return f"{told}; {meaning(tuning, found, id, pin)}" if held else told

    return Order(
        kind="measure",
        title=title(tuning),
        lane=lane(None, tuning.device),
        work=work,
        key=tuning.key,
        tuning=id,
    )
