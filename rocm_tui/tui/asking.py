"""Pin and unpin: say what will change, ask, change it off the event loop, tell the result.

Measure again: the choices that a person marked, or those near the best, by the queue of jobs.

Measure what this machine can do at best, in a worker, for the roofline.

What was found holds while the program runs: it takes two seconds to measure again, and a file of it
would have to say of which machine it is, and would be believed long after that has changed.
"""

from __future__ import annotations

import socket
from asyncio import to_thread
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING, Any

from backend.records import Choice, Tuning
from backend.store.errors import StoreError
from backend.store.pins import PinStore
from rocm_tui import format as fmt
from rocm_tui.devices import lane
from rocm_tui.errors import RocmTuiError
from rocm_tui.format import plain
from rocm_tui.job_queue import Order
from rocm_tui.job_run import RunJob
from rocm_tui.measuring import measure, measure_job, worth_measuring
from rocm_tui.session.devices import Peak
from rocm_tui.session.find import system_hash
from rocm_tui.session.measured_text import meaning, standing
from rocm_tui.session.model import Row
from rocm_tui.session.pin_warning import pin_warning
from rocm_tui.session.roofline import Machine
from rocm_tui.tui.screens.dialogs import ConfirmScreen
from rocm_tui.tune_request import title
from rocm_tui.widgets.choice_lines import name_of

if TYPE_CHECKING:
    from backend.store.pins import PinPlan, PinStatus
    from rocm_tui.tui.app import RocmTui


async def pin(app: RocmTui, row: Row, choice: Choice) -> None:
    """Ask, then let `choice` win for every later torch.compile."""
    if app.asking:
        return
    key = row.tuning.key
    if key is None or choice.hash is None:
        _refuse(
            app,
            "This tuning is known from a log only. A pin needs its entry in the persistent cache: "
            "watch the cache dir that the program used.",
        )
        return
    store = PinStore(app.layout)
    question = ConfirmScreen(
        f"Pin {choice.label}", "Pin", note=True, warning=pin_warning(row.tuning, choice)
    )
    answer = app.push_screen(question, wait_for_dismiss=True)
    try:
        system = system_hash(row, app.feed.model.sessions, app.layout)
        plan = await to_thread(store.plan, system, key, choice.hash, choice.config)
        question.tell(_pin_lines(row, plan))
        note = await answer
        if note is None:
            return
        report = await to_thread(
            partial(
                store.pin,
                plan.system_hash,
                key,
                choice.hash,
                label=choice.label,
                note=note,
                config=choice.config,
            )
        )
    except (StoreError, OSError) as error:
        question.answer(None)
        _refuse(app, str(error))
        return
    state = report.status.state if report.status else "active"
    _tell(app, f"Pinned {choice.label}: {state}", report.status)


async def unpin(app: RocmTui, status: PinStatus) -> None:
    """Ask, then restore what the pin changed."""
    if app.asking:
        return
    taken = status.pin
    question = ConfirmScreen(
        f"Unpin {taken.label}",
        "Unpin",
        [
            f"{taken.op} goes back to the choice that was measured fastest.",
            "Its measured times and the compiled graphs that were moved aside return.",
        ],
    )
    if await app.push_screen_wait(question) is None:
        return
    try:
        await to_thread(PinStore(app.layout).unpin, taken.key, taken.system_hash)
    except (StoreError, OSError) as error:
        _refuse(app, str(error))
        return
    _tell(app, f"Unpinned {taken.label}", None)


def _pin_lines(row: Row, plan: PinPlan) -> list[str]:
    """What exactly a pin will change."""
    lines = [f"{row.tuning.op}  {fmt.operands(row.tuning)}"]
    if plan.replaces is not None:
        lines.append(f"Takes the place of the pin to {plan.replaces.label}.")
    graphs = len(plan.graphs)
    aside = "1 compiled graph is" if graphs == 1 else f"{graphs or 'No'} compiled graphs are"
    numbers = "1 rival is" if plan.numbers == 1 else f"{plan.numbers} rivals are"
    return [
        *lines,
        "",
        f"{numbers} raised out of reach in {plan.path}",
        f"{aside} moved aside. Unpin brings everything back.",
    ]


def _refuse(app: RocmTui, why: str) -> None:
    app.notify(plain(why), severity="error", markup=False, timeout=8)


def _tell(app: RocmTui, what: str, status: PinStatus | None) -> None:
    good = status is None or status.state == "active"
    detail = "" if status is None or good else f": {status.detail}"
    app.notify(plain(what + detail), severity="information" if good else "warning", markup=False)
    app.feed.look()


if TYPE_CHECKING:
    from backend.store.pins import PinStatus
    from rocm_tui.session.model import Row
    from rocm_tui.tui.app import RocmTui


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


if TYPE_CHECKING:
    from rocm_tui.tui.app import RocmTui

_PATIENCE = 120.0


async def measure_peak(app: RocmTui, machine: Machine) -> None:
    """Measure the peak of `machine`, which must be this one, and show it."""
    here = socket.gethostname()
    if machine.name == "cpu" and machine.host != here:
        where = f"on {machine.host}" if machine.host else "on a host that no source names"
        _refuse_peak(app, f"These tunings were made {where}; a CPU is measured where it is.")
        return
    app.notify(f"Measuring the peak of {plain(machine.label)}: some two seconds.", markup=False)
    try:
        result = await to_thread(_run, app, "cpu" if machine.name == "cpu" else "cuda")
        found, peak = _read(result, here)
    except RocmTuiError as error:
        _refuse_peak(app, str(error))
        return
    if found != machine:
        _refuse_peak(
            app, f"This machine has a {found.label}; {machine.label} is measured where it is."
        )
        return
    app.peaks[machine] = peak
    update: Callable[[], None] | None = getattr(app.screen, "update", None)
    if update is not None:
        update()


def _run(app: RocmTui, device: str) -> Mapping[str, Any]:
    from rocm_tui.jobs import run_job
    from rocm_tui.python_env import find_python

    job = {"job": "peak", "device": device}
    python = find_python(app.python)
    return run_job(job, python=python, cache_dir=app.layout.root, timeout=_PATIENCE)


def _read(result: Mapping[str, Any], host: str) -> tuple[Machine, Peak]:
    """Which device was measured, and what it reached."""
    name = str(result["device"])
    machine = Machine(name, result["arch"], result["compute_units"])
    if name == "cpu":
        machine = Machine("cpu", host=host)
    source, threads = "measured here: square products, a copy", int(result["threads"])
    if name == "cpu":
        source += f"; {threads} thread{'s' * (threads != 1)}"
    return machine, Peak(machine.label, dict(result["tflops"]), float(result["gbs"]), source)


def _refuse_peak(app: RocmTui, why: str) -> None:
    app.notify(plain(why), severity="error", markup=False, timeout=8)
