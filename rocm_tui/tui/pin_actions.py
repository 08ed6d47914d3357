"""Pin, unpin and undo, after showing what will change; re-apply. Started by `BaseApp.act`."""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable
from functools import partial

from backend.counted import counted, device_ranges
from backend.errors import PinRefused, StoreError
from backend.model.choice import Choice
from backend.model.inductor_kernel import is_inductors
from backend.pins.plan import PinPlan
from backend.pins.state import PinStatus
from backend.pins.store import PinStore
from backend.pins.undo import Undo, next_undo
from backend.pins.undo import undo as undo_step
from rocm_tui.actions.pin import check_plan, pin_choice, pinnable, plan_pin, take_back
from rocm_tui.render.measured import output_warning
from rocm_tui.render.pins import pin_effect, pin_warning, undo_lines, undo_title, undone_pins
from rocm_tui.session import stats
from rocm_tui.session.model import Row
from rocm_tui.tui.base import BaseApp
from rocm_tui.tui.screens.dialogs import ConfirmScreen, confirm

_SHOWN = 6
"""The maximum number of pins listed in the question of an undo."""
_DIGITS = 16
"""Characters shown of the name of a cache file, which is a hash of the system."""


async def pin(app: BaseApp, row: Row, choice: Choice) -> None:
    """Show what pinning will change; pin if the person agrees."""
    if app.asking:
        return
    wanted = pinnable(row, choice, app.feed.model.sessions)
    command = partial(app.shell.pin, row, choice)
    warning, effect = _warning(row, choice), pin_effect(row, choice)
    question = ConfirmScreen(
        f"Pin {choice.label}", "Pin", note=True, warning=warning, command=command
    )
    answer = app.push_screen(question, wait_for_dismiss=True)
    try:
        plan = await to_thread(plan_pin, wanted, app.layout)
        question.show_lines([*effect, *_plan_lines(row, choice, plan)])
        note = await answer
        if note is None:
            return
        now = app.feed.model.row(row.key) or row
        if (_warning(now, choice), pin_effect(now, choice)) != (warning, effect):
            await to_thread(check_plan, wanted, plan, app.layout)  # it may know a better reason
            raise PinRefused(
                f"more is known of {choice.label} by now; nothing was pinned, look at it again"
            )
        pinned = await to_thread(partial(pin_choice, wanted, app.layout, note=note, plan=plan))
    except (StoreError, OSError):
        question.answer(None)
        raise
    detail = f": {pinned.detail}" if pinned.detail else ""
    app.did(command(note), f"Pinned {choice.label}: {pinned.state}{detail}", ok=pinned.done)
    app.feed.reconciler.poke()


async def unpin(app: BaseApp, status: PinStatus) -> None:
    """Show what will be restored; unpin if the person agrees."""
    pinned = status.pin
    command = app.shell.unpin(pinned)
    lines = [
        f"{pinned.op} goes back to the choice with the smallest time.",
        "Its measured times and the compiled graphs that were moved aside return.",
    ]
    if await confirm(app, f"Unpin {pinned.label}", "Unpin", lines, command):
        await to_thread(take_back, [pinned], app.layout)
        app.did(command, f"Unpinned {pinned.label}")
        app.feed.reconciler.poke()


async def undo(app: BaseApp) -> None:
    """Show what the last pin or unpin was; undo it if the person agrees."""
    if app.asking:
        return
    command = app.shell.undo()
    step = await to_thread(next_undo, app.layout)
    if step is None:
        app.warn("Nothing is left to undo: no pin or unpin of yours is in force.")
    elif await confirm(app, "Undo", "Undo", [*undo_lines(step), *_undone_lines(step)], command):
        await to_thread(undo_step, app.layout, step)
        app.did(command, f"Undid: {undo_title(step)}")
        app.feed.reconciler.poke()


def _undone_lines(step: Undo) -> list[str]:
    """List the pins of one command, as far as the question has room."""
    lines = undone_pins(step)
    more = len(lines) - _SHOWN
    if more > 1:
        lines = [*lines[:_SHOWN], f"and {more:,} more"]
    return ["", *lines] if lines else []


async def reapply(app: BaseApp, done: Callable[[], None]) -> None:
    """Make the caches agree with the pins, then call `done`."""
    statuses = await to_thread(PinStore(app.layout).reconcile)
    app.feed.inbox.put_pins(statuses)
    active = sum(status.state == "active" for status in statuses)
    outcome = f"Applied again: {active} of {len(statuses)} active."
    app.did(app.shell.reapply(), outcome, ok=active == len(statuses))
    done()


def _warning(row: Row, choice: Choice) -> str | None:
    """Warn that the choice is slower, or computes other bits."""
    warnings = (pin_warning(row.tuning, choice), output_warning(row, choice))
    return " ".join(filter(None, warnings)) or None


def _plan_lines(row: Row, choice: Choice, plan: PinPlan) -> list[str]:
    """Describe exactly what a pin will change."""
    lines = [f"{row.tuning.op}  {stats.all_sizes(row.tuning)}"]
    already = plan.replaces is not None and plan.replaces.hash == choice.hash
    if already:
        lines.append("It is pinned already: a new note takes the place of the old one.")
    elif plan.replaces is not None:
        lines.append(f"Takes the place of the pin to {plan.replaces.label}.")
    graphs = len(plan.graphs)
    aside = counted(graphs, "compiled graph is", "compiled graphs are")
    aside = aside if graphs else "No compiled graphs are"
    numbers = counted(plan.numbers, "rival's time is", "rivals' times are")
    if is_inductors(plan.key.op):
        files = counted(plan.numbers, "best config is", "best configs are")
        held = f"{files} written; where there is none it holds under rocm-tui run."
        return [*lines, "", held, f"{aside} moved aside. Unpin restores everything."]
    file = f"{plan.path.parent.name}/{plan.path.name[:_DIGITS]}…"
    if already and not plan.numbers:
        numbers = "The times of its rivals are out of reach already"
    else:
        numbers = f"{numbers} raised out of reach"
    several = len(plan.devices) > 1
    where = f" for devices {device_ranges(plan.devices)}" if several else ""
    return [
        *lines,
        "",
        f"{numbers} in {file}{where}",
        f"{aside} moved aside{where}. Unpin restores everything.",
    ]
