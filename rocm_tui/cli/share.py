"""`rocm-tui export [ID...]`: pins as a file for another machine, as Inductor's lookup table, or as
the `kernel_options` of flex attention;
`rocm-tui import FILE`: take them in, after checking where they come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from backend.counted import counted
from backend.sharing.kernel_options import as_json as options_json
from backend.sharing.kernel_options import as_python, calls_of
from backend.sharing.lookup_table import Table, as_json, lookup_table
from backend.sharing.plan import Step
from backend.sharing.share import SharedPin
from backend.tables.model import op_label
from rocm_tui import say
from rocm_tui.actions.share import (
    ImportPlan,
    apply_import,
    export_text,
    flex_choices,
    pins_to_share,
    plan_import,
    unknown_origins,
    write_shared,
)
from rocm_tui.cli import common
from rocm_tui.cli.common import CommandArguments, ExitCode
from rocm_tui.errors import UsageError
from rocm_tui.harmless import plain
from rocm_tui.render.pins import step_json
from rocm_tui.render.table import table
from rocm_tui.session import numbers as fmt


@click.command()
@common.pinned_ids_argument
@click.option(
    "--output", "-o", type=common.FILE, metavar="FILE", help="Write FILE (default: stdout)."
)
@click.option(
    "--lookup-table",
    is_flag=True,
    help="Write torch._inductor.config.lookup_table.table, for use without rocm-tui.",
)
@click.option(
    "--kernel-options",
    is_flag=True,
    help="Write the kernel_options of each flex attention call as Python code.",
)
@click.option(
    "--fastest",
    is_flag=True,
    help="With --kernel-options: those of the fastest choice, pinned or not.",
)
@common.from_option
@common.python_option
@common.cache_dir_option
@click.option(
    "--json",
    is_flag=True,
    help="With -o: print what was written as JSON; with --kernel-options: print JSON.",
)
def export_command(**given: Any) -> int:
    """Write the pins of these tunings (default: all) as JSON that `import` reads elsewhere.

    Exit code 1 if there is none to write.
    """
    args = CommandArguments(**given)
    if args.lookup_table and args.kernel_options:
        raise UsageError("--lookup-table and --kernel-options are two files; export one at a time")
    if args.fastest and not args.kernel_options:
        raise UsageError("--fastest goes with --kernel-options")
    if args.kernel_options:
        return _export_options(args)
    if args.json and args.output is None:
        raise UsageError("--json says what -o wrote; without -o stdout is the JSON file itself")
    layout = common.layout_of(args)
    pins = pins_to_share(layout, args.ids, args.sources, args.python)
    if not pins:
        say.err("nothing is pinned, so there is nothing to export")
        return ExitCode.NO
    if args.lookup_table:
        return _export_table(args, lookup_table(pins))
    for name, ids in unknown_origins(pins).items():
        say.err(
            f"the {name} that {', '.join(ids)} was tuned with is not known (no session of "
            f"`rocm-tui run` tells it), so an import cannot check it"
        )
    _write(args.output, export_text(pins))
    _print_written(args, pins)
    return ExitCode.YES


def _export_table(args: CommandArguments, lookup: Table) -> int:
    if lookup.pins:
        _write(args.output, as_json(lookup.entries))
        _print_written(args, lookup.pins, lookup)
    for how, remarks in (("left out", lookup.left_out), ("note", lookup.notes)):
        for remark in remarks:
            pin = remark.subject
            say.err(f"{pin.id} {pin.op} {pin.label}: {how}: {remark.text}")
    if not lookup.pins:
        say.err("the lookup table can hold none of these pins; nothing was written")
    return ExitCode.of(bool(lookup.pins))


def _export_options(args: CommandArguments) -> int:
    """Python on stdout or in FILE; with --json what was said of it, as JSON on stdout."""
    layout = common.layout_of(args)
    choices = flex_choices(layout, args.ids, args.sources, fastest=args.fastest)
    found = calls_of(choices)
    for how, remarks in (("left out", found.left_out), ("note", found.notes)):
        for remark in remarks:
            said = f"{remark.subject.id} {remark.subject.op} {remark.subject.label}"
            say.err(f"{plain(said)}: {how}: {plain(remark.text)}")
    if not choices:
        what = "no flex attention was timed" if args.fastest else "no flex attention is pinned"
        say.err(f"{what}, so there is nothing to export")
    if found.calls and (args.output or not args.json):
        _write(args.output, as_python(found.calls))
    if args.json:
        say.out_json({"file": str(args.output) if args.output else None, **options_json(found)})
    elif found.calls and args.output:
        say.out(f"wrote {counted(len(found.calls), 'call')} to {plain(str(args.output))}")
    return ExitCode.of(bool(found.calls))


def _write(path: Path | None, text: str) -> None:
    if path is None:
        say.out_text(text)
    else:
        write_shared(path, text)


def _print_written(
    args: CommandArguments, pins: Sequence[SharedPin], lookup: Table | None = None
) -> None:
    if args.output is None:
        return
    if not args.json:
        say.out(f"wrote {counted(len(pins), 'pin')} to {plain(str(args.output))}")
        return
    left_out, notes = (lookup.left_out, lookup.notes) if lookup else ((), ())
    say.out_json(
        {
            "file": str(args.output),
            "pins": [pin.id for pin in pins],
            "left_out": [{"id": remark.subject.id, "reason": remark.text} for remark in left_out],
            "notes": [{"id": remark.subject.id, "note": remark.text} for remark in notes],
        }
    )


@click.command()
@click.argument("file", metavar="FILE", type=common.FILE)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--yes", is_flag=True, help="Import the pins; nothing is changed without it.")
@click.option(
    "table",
    "--table",
    type=common.FILE,
    multiple=True,
    metavar="TABLE",
    help="A tuned table of this machine, for pins of its entries (repeatable).",
)
@common.python_option
@common.cache_dir_option
@common.json_option
def import_command(**given: Any) -> int:
    """Check the pins of FILE against this machine, and import them with --yes.

    With ID, only the pins of these tunings. Exit code 1 if one of them cannot be used here: then
    nothing is changed.
    """
    args = CommandArguments(**given)
    layout = common.layout_of(args)
    plan = plan_import(args.file, args.ids, layout, args.python, args.table)
    if not plan.steps:
        if args.json:
            say.out_json(_import_json(plan, applied=False))
        say.err(f"{args.file} holds no pins")
        return ExitCode.NO
    _print_differences(plan)
    if not args.json:
        cells = [_step_cells(step) for step in plan.steps]
        say.out(table(("id", "op", "choice", "what", ""), cells))
    if args.yes and plan.fits:
        done = apply_import(plan, layout)
        say.err(f"{done} imported" if done else "every pin is here already")
    elif not plan.fits:
        say.err("nothing was changed; name the IDs that fit to import only those")
    elif plan.changes:
        say.err("nothing was changed; --yes does it")
    if args.json:
        say.out_json(_import_json(plan, applied=args.yes and plan.fits))
    return ExitCode.of(plan.fits)


def _print_differences(plan: ImportPlan) -> None:
    for there, differences in plan.differences.items():
        where = f"{there.host}: " if there.host else ""
        for difference in differences:
            if difference.known:
                kind = "refused" if difference.refuses else "warning"
                say.err(f"{kind}: {where}{difference.sentence}")
        unknown = [difference.field for difference in differences if not difference.known]
        if unknown:
            say.err(
                f"warning: {where}not known on both sides, so not checked: {', '.join(unknown)}"
            )


def _step_cells(step: Step) -> tuple[str, ...]:
    return (
        step.pin.id,
        plain(op_label(step.pin.op)),
        fmt.shorten(plain(step.pin.label or step.pin.hash), 40),
        step.action,
        plain(step.detail),
    )


def _import_json(plan: ImportPlan, *, applied: bool) -> dict[str, Any]:
    return {
        "applied": applied,
        "by": plan.share.by,
        "when": plan.share.when,
        "differences": [
            {"host": there.host, **asdict(difference)}
            for there, differences in plan.differences.items()
            for difference in differences
        ],
        "pins": [
            {**step_json(step), "numbers": step.numbers, "graphs": step.graphs}
            for step in plan.steps
        ],
    }
