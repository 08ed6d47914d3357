"""Pin and unpin: say what will change, ask, change it off the event loop, tell the result."""

from __future__ import annotations

from asyncio import to_thread
from functools import partial
from typing import TYPE_CHECKING

from backend.errors import StoreError
from backend.pins.store import PinStore
from backend.records import Choice
from rocm_tui import format as fmt
from rocm_tui.format import plain
from rocm_tui.screens.confirm import ConfirmScreen
from rocm_tui.session.find import system_hash
from rocm_tui.session.model import Row
from rocm_tui.session.pin_warning import pin_warning

if TYPE_CHECKING:
    from backend.pins.state import PinPlan, PinStatus
    from rocm_tui.screens.program import RocmTui


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
