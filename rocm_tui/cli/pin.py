"""`rocm-tui pin` and `unpin`; and `pins` and `undo`, which `pin` replaced."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from msgspec import UNSET, UnsetType

from backend.counted import counted, device_ranges
from backend.disk.layout import Layout
from backend.model.inductor_kernel import is_inductors
from backend.model.tuning import Pin
from backend.pins.plan import PinPlan
from backend.pins.store import PinStore
from backend.pins.undo import next_undo, undo
from rocm_tui import say
from rocm_tui.actions.commands import ShellCommands
from rocm_tui.actions.pin import (
    Pinnable,
    Pinned,
    pin_choice,
    pinnable,
    plan_pin,
    take_all_back,
    take_back,
)
from rocm_tui.actions.sources import pick_tuning
from rocm_tui.actions.tables import is_place, pin_row, pins_at, plan_row, row_at, solution_of
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.errors import NotPinnable, UsageError
from rocm_tui.harmless import plain
from rocm_tui.json_output import Document
from rocm_tui.render.measured import BitsChangeJson, output_warning, why_not_bitwise
from rocm_tui.render.pins import (
    PIN_LIST,
    PinEventJson,
    PinJson,
    PinPlanJson,
    PinReportJson,
    UndoJson,
    history_line,
    moment,
    pin_warning,
    state_text,
    undo_title,
    undone_pins,
)
from rocm_tui.render.table import text_table
from rocm_tui.session.find import find_pins
from rocm_tui.session.refusals import why_wrong

reconcile_option = common.flag("--reconcile", "Apply pins that have drifted again, then list all.")
history_option = common.flag("--history", "List the pins, and what was pinned and unpinned before.")


@click.command()
@common.optional_id_argument
@click.argument("choice", metavar="[CHOICE]", required=False)
@click.option("--note", default="", help="Record this reason in the history.")
@common.dry_run_option
@common.flag(
    "--bitwise", "Refuse unless CHOICE was measured to give the same bits as the choice in use."
)
@common.flag("--wrong", "Pin CHOICE even if measuring found its result to be wrong.")
@common.flag("--undo", "Undo your last pin or unpin; each call goes one step further back.")
@reconcile_option
@history_option
@common.from_option
@common.output_options
def pin_command(
    id: str | None,
    choice: str | None,
    note: str,
    dry_run: bool,
    bitwise: bool,
    wrong: bool,
    undo: bool,
    reconcile: bool,
    history: bool,
    sources: Sequence[str],
    cache_dir: Path | None,
    json: bool,
) -> int:
    """Pin CHOICE of tuning ID: every later torch.compile uses it until `unpin`.

    Without ID, list the pins; exit code 1 then means that a pin is not active.

    CHOICE is a name, a hash, the first digits of a hash, or #2 for the second fastest. ID may be
    FILE:LINE of a tuned table (TunableOp, AITER, MoE configs); CHOICE is then the name of another
    solution, NAME=VALUE,..., or a table that has it for the same entry.

    \b
    Examples:
    rocm-tui pin 3fa91c2 '#2' --note 'faster in the model'
    rocm-tui pin --history
    rocm-tui pin --undo
    """
    common.require_at_most_one(undo=undo, reconcile=reconcile, history=undo and history)
    layout = common.layout_at(cache_dir)
    if id is not None and (undo or reconcile or history):
        raise UsageError("--undo, --reconcile and --history go without ID and CHOICE")
    if undo and (note or bitwise or wrong or sources):
        raise UsageError("--undo goes without --note, --bitwise, --wrong and --from")
    if undo:
        return _undo(layout, dry_run=dry_run, json=json)
    if id is None:
        if note or dry_run or bitwise or wrong or sources:
            raise UsageError("which choice? pin ID CHOICE; pin alone lists the pins")
        return _list(layout, reconcile=reconcile, history=history, json=json)
    if choice is None:
        listed = ShellCommands(layout).line("show", id)
        raise UsageError(f"which choice? `{plain(listed)}` lists them")
    if is_place(id):
        if bitwise or wrong or sources:
            raise UsageError("--bitwise, --wrong and --from go without FILE:LINE of a tuned table")
        return _pin_row(layout, id, choice, note=note, dry_run=dry_run, json=json)
    model, row = pick_tuning(layout, sources, id)
    wanted = pinnable(row, choice, model.sessions, wrong=wrong)
    row = wanted.row
    if bitwise and (why := why_not_bitwise(row, wanted.choice)):
        raise NotPinnable(why)
    bits = BitsChangeJson.of(row, wanted.choice)
    if dry_run:
        plan = plan_pin(wanted, layout)
        if json:
            say.out_json(PinPlanJson.of(plan, bits))
        else:
            say.out(_plan_text(wanted, plan))
        return ExitCode.YES
    pinned = pin_choice(wanted, layout, note=note)
    for warning in (
        why_wrong(row, wanted.choice),
        pin_warning(wanted.row.tuning, wanted.choice),
        output_warning(row, wanted.choice),
    ):
        if warning:
            say.err(warning)
    if json:
        say.out_json(PinReportJson.of(pinned.report, bits))
    else:
        say.out(_pinned_text(wanted, pinned))
    return ExitCode.of(pinned.done)


def _pin_row(
    layout: Layout, place: str, choice: str, *, note: str, dry_run: bool, json: bool
) -> int:
    """Pin another solution in the row of a tuned table."""
    row = row_at(place)
    solution = solution_of(row, choice)
    if dry_run:
        plan = plan_row(row, solution, layout)
        if json:
            say.out_json(PinPlanJson.of(plan))
        else:
            does = "would write" if plan.numbers else "would leave as it is"
            say.out(f"{does} {plain(row.path_line)}: {plain(solution.text)}")
        return ExitCode.YES
    report = pin_row(row, solution, layout, note=note)
    if json:
        say.out_json(PinReportJson.of(report))
    else:
        say.out(
            f"pinned {plain(solution.label)} in {plain(row.place)} as {report.pin.id}, in the "
            f"place of {plain(row.entry.solution)}; a program takes it when it reads the table"
        )
    return ExitCode.YES


def _plan_text(wanted: Pinnable, plan: PinPlan) -> str:
    return (
        f"would pin {plain(wanted.choice.label)} for {wanted.row.id}: "
        f"{_changes(wanted, plan.numbers, ' is', ' are')} in "
        f"{plain(str(plan.path))}, "
        f"{counted(len(plan.graphs), 'compiled graph is', 'compiled graphs are')} moved aside"
        f"{_devices(plan.devices)}"
    )


def _devices(indices: Sequence[int]) -> str:
    """Whose numbers and graphs a pin changes, on a box with several devices."""
    return f"; for devices {device_ranges(indices)}" if len(indices) > 1 else ""


def _changes(wanted: Pinnable, count: int, one: str = "", more: str = "") -> str:
    """Return what a pin changes: files of a kernel that Inductor launches, else numbers."""
    if is_inductors(wanted.key.op):
        return f"{counted(count, f'best config{one}', f'best configs{more}')} written"
    return f"{counted(count, f'number{one}', f'numbers{more}')} raised out of reach"


def _pinned_text(wanted: Pinnable, pinned: Pinned) -> str:
    report = pinned.report
    state = state_text(report.status) if report.status else pinned.state
    return (
        f"pinned {plain(pinned.choice.label)} for {wanted.row.id}, {state}: "
        f"{_changes(wanted, report.numbers)}, "
        f"{counted(report.moved, 'compiled graph')} moved aside"
    )


class UnpinnedJson(Document, tag="rocm-tui/unpin/1"):
    unpinned: list[str]


@click.command()
@click.argument("ids", metavar="[ID]...", type=common.PINNED, nargs=-1)
@common.flag("--all", "Remove every pin of this cache directory.")
@common.dry_run_option
@common.output_options
def unpin_command(
    ids: Sequence[str], all: bool, dry_run: bool, cache_dir: Path | None, json: bool
) -> int:
    """Remove the pins of these tunings; measured times and compiled graphs are restored.

    ID is the id of a pinned tuning, or FILE:LINE of a tuned table.

    Example: rocm-tui unpin 3fa91c2
    """
    if bool(ids) == all:
        raise UsageError("unpin takes either ids or --all; `rocm-tui pin` prints the ids")
    layout = common.layout_at(cache_dir)
    store = PinStore(layout)
    pins: Sequence[Pin] = (*store.pins(), *store.unfinished())
    pins = pins if all else _pins_of(pins, ids)
    if dry_run:
        return common.print_plan([f"unpin {pin.label} of {pin.id}" for pin in pins], json)
    if all:
        pins = take_all_back(layout)
    else:
        take_back(pins, layout)
    if json:
        say.out_json(UnpinnedJson(unpinned=[pin.id for pin in pins]))
    elif pins:
        for pin in pins:
            say.out(f"unpinned {plain(pin.label)} of {pin.id}")
    else:
        say.out("nothing is pinned")
    return ExitCode.YES


def _pins_of(pins: Sequence[Pin], words: Sequence[str]) -> list[Pin]:
    """Each once, in the order of the words."""
    meant: list[Pin] = []
    for word in words:
        matching = pins_at(pins, word) if is_place(word) else find_pins(pins, [word])
        meant += [pin for pin in matching if pin not in meant]
    return meant


class PinsJson(Document, tag="rocm-tui/pins/1"):
    """The pins of a cache directory; `history` with `--history` only."""

    pins: list[PinJson]
    history: list[PinEventJson] | UnsetType


@click.command(hidden=True)
@reconcile_option
@history_option
@common.output_options
def pins_command(reconcile: bool, history: bool, cache_dir: Path | None, json: bool) -> int:
    """List the pins of the cache directory, as `rocm-tui pin` does without ID.

    Example: rocm-tui pin
    """
    return _list(common.layout_at(cache_dir), reconcile=reconcile, history=history, json=json)


def _list(layout: Layout, *, reconcile: bool, history: bool, json: bool) -> int:
    """Print the pins and, if wanted, the history; exit code 1 if one of them is not active."""
    store = PinStore(layout)
    statuses = store.reconcile(thorough=True) if reconcile else store.status()
    events = store.history() if history else ()
    if json:
        say.out_json(
            PinsJson(
                pins=[PinJson.of(status) for status in statuses],
                history=[PinEventJson.of(event) for event in events] if history else UNSET,
            )
        )
    else:
        say.out(text_table(PIN_LIST, statuses) if statuses else "nothing is pinned")
        for pin in store.unfinished():
            what = f"the unpin of {plain(pin.label)} was interrupted"
            again = ShellCommands(layout).unpin(pin)
            say.err(f"{what}, and it may still win: `{again}` finishes it")
        for event in events:
            say.out(history_line(event))
    return ExitCode.of(all(status.state == "active" for status in statuses))


@click.command(hidden=True)
@common.dry_run_option
@common.output_options
def undo_command(dry_run: bool, cache_dir: Path | None, json: bool) -> int:
    """Undo your last pin or unpin, as `rocm-tui pin --undo` does.

    Example: rocm-tui pin --undo
    """
    return _undo(common.layout_at(cache_dir), dry_run=dry_run, json=json)


def _undo(layout: Layout, *, dry_run: bool, json: bool) -> int:
    """Undo all that one command pinned or unpinned; exit code 1 if nothing is left to undo."""
    step = next_undo(layout)
    if step is not None and not dry_run:
        undo(layout, step)
    if json:
        say.out_json(UndoJson.of(step, dry_run=dry_run))
    elif step is not None:
        entry = step.entry
        done = f"{moment(entry.when)} by {plain(entry.who)}"
        say.out(f"{'Would undo' if dry_run else 'Undid'}: {undo_title(step)} ({done})")
        for line in undone_pins(step):
            say.out(f"  {line}")
    else:
        say.err("nothing is left to undo: no pin or unpin of yours is in force")
    return ExitCode.of(step is not None)
