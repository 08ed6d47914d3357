"""`rocm-tui export`, `import` and `agree`: one choice on all machines and ranks."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from msgspec import UNSET

from backend.counted import counted, noun
from backend.disk.layout import Layout
from backend.sharing.kernel_options import FlexOptionsExport, as_python, calls_of
from backend.sharing.lookup_table import LookupTable, as_json, lookup_table
from backend.sharing.plan import ImportStep
from backend.sharing.share import SharedPin
from backend.tables.model import op_label
from rocm_tui import say
from rocm_tui.actions.agree import (
    PinStep,
    Selections,
    find_selections,
    measure_chosen,
    pin_all,
    plan_pins,
    with_measured,
)
from rocm_tui.actions.commands import ShellCommands
from rocm_tui.actions.pin import Pinned
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
from rocm_tui.actions.sources import load_model
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.cli.work import Work
from rocm_tui.errors import RocmTuiError, UsageError
from rocm_tui.harmless import plain
from rocm_tui.jobs.limits import seconds_given
from rocm_tui.json_output import Document, JsonObject, fill
from rocm_tui.render import agree as agree_text
from rocm_tui.render.agree import AgreedPinJson, AgreedPinsJson
from rocm_tui.render.jobs import problem_title
from rocm_tui.render.measured import output_warning
from rocm_tui.render.pins import pin_warning
from rocm_tui.render.problems import trouble_lines
from rocm_tui.render.table import hanging, plain_table
from rocm_tui.report.agreement import Agreement, Proposal, agreement, propose
from rocm_tui.session import numbers as fmt


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """The options of `export`."""

    ids: Sequence[str]
    output: Path | None
    lookup_table: bool
    kernel_options: bool
    fastest: bool
    sources: Sequence[str]
    python: str | None
    cache_dir: Path | None
    json: bool

    @property
    def layout(self) -> Layout:
        return common.layout_at(self.cache_dir)


@click.command()
@common.pinned_ids_argument
@click.option(
    "--output", "-o", type=common.FILE, metavar="FILE", help="Write to FILE (default: stdout)."
)
@common.flag(
    "--lookup-table", "Write torch._inductor.config.lookup_table.table, for use without rocm-tui."
)
@common.flag(
    "--kernel-options", "Write the kernel_options of each flex attention call as Python code."
)
@common.flag("--fastest", "With --kernel-options, take the fastest choice, pinned or not.")
@common.from_option
@common.python_option
@common.cache_dir_option
@common.flag("--json", "Print JSON (needs -o or --kernel-options).")
def export_command(**given: Any) -> int:
    """Write the pins of these tunings (default: all) as JSON that `import` reads elsewhere.

    Exit code 1 if there is none to write.

    Example: rocm-tui export -o pins.json
    """
    args = ExportOptions(**given)
    if args.lookup_table and args.kernel_options:
        raise UsageError("--lookup-table and --kernel-options are two files; export one at a time")
    if args.fastest and not args.kernel_options:
        raise UsageError("--fastest goes with --kernel-options")
    if args.kernel_options:
        return _export_options(args)
    if args.json and args.output is None:
        raise UsageError("--json says what -o wrote; without -o stdout is the JSON file itself")
    pins = pins_to_share(args.layout, args.ids, args.sources, args.python)
    if not pins:
        raise NothingToExport("nothing is pinned, so there is nothing to export")
    if args.lookup_table:
        return _export_table(args, lookup_table(pins))
    _write_pins(args.output, pins)
    _print_written(args, pins)
    return ExitCode.YES


class NothingToExport(RocmTuiError):
    """No pin can be written."""


def _export_table(args: ExportOptions, lookup: LookupTable) -> int:
    if lookup.pins:
        _write(args.output, as_json(lookup.entries))
        _print_written(args, lookup.pins, lookup)
    _print_remarks(lookup)
    if not lookup.pins:
        raise NothingToExport("the lookup table can hold none of these pins; nothing was written")
    return ExitCode.YES


def _export_options(args: ExportOptions) -> int:
    """Write Python to stdout or FILE; with --json, print the remarks as JSON."""
    choices = flex_choices(args.layout, args.ids, args.sources, fastest=args.fastest)
    flex_calls = calls_of(choices)
    _print_remarks(flex_calls)
    if not choices:
        what = "no flex attention was timed" if args.fastest else "no flex attention is pinned"
        say.err(f"{what}, so there is nothing to export")
    if flex_calls.calls and (args.output or not args.json):
        _write(args.output, as_python(flex_calls.calls))
    if args.json:
        say.out_json(KernelOptionsJson.of(args.output, flex_calls))
    elif flex_calls.calls and args.output:
        say.out(f"wrote {counted(len(flex_calls.calls), 'call')} to {plain(str(args.output))}")
    return ExitCode.of(bool(flex_calls.calls))


def _print_remarks(export: LookupTable | FlexOptionsExport) -> None:
    for how, remarks in (("left out", export.left_out), ("note", export.notes)):
        for remark in remarks:
            subject = remark.subject
            say.err(f"{subject.id} {subject.op} {subject.label}: {how}: {remark.text}")


def _write(path: Path | None, text: str) -> None:
    if path is None:
        say.out_text(text)
    else:
        write_shared(path, text)


def _write_pins(path: Path | None, pins: Sequence[SharedPin]) -> None:
    for name, ids in unknown_origins(pins).items():
        say.err(
            f"the {name} that {', '.join(ids)} was tuned with is not known (no session of "
            f"`rocm-tui run` records it), so an import cannot check it"
        )
    _write(path, export_text(pins))


class LeftOutJson(JsonObject):
    id: str
    reason: str


class NoteJson(JsonObject):
    id: str
    note: str


def _remarks_json(export: LookupTable | FlexOptionsExport | None) -> dict[str, Any]:
    """Return the members `left_out` and `notes` of a document."""
    left_out, notes = (export.left_out, export.notes) if export else ((), ())
    return {
        "left_out": [LeftOutJson(each.subject.id, each.text) for each in left_out],
        "notes": [NoteJson(each.subject.id, each.text) for each in notes],
    }


class FlexTuningJson(JsonObject):
    """A tuning of flex attention, and the choice whose options are exported."""

    id: str
    op: str
    choice: str
    hash: str | None
    ms: float | None
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]


class FlexCallJson(JsonObject):
    kernel_options: dict[str, int | bool]
    tunings: list[FlexTuningJson]


class KernelOptionsJson(Document, tag="rocm-tui/export-kernel-options/1"):
    """The calls of flex_attention that choose its kernels, and what no options can say."""

    file: str | None
    calls: list[FlexCallJson]
    left_out: list[LeftOutJson]
    notes: list[NoteJson]

    @classmethod
    def of(cls, file: Path | None, found: FlexOptionsExport) -> KernelOptionsJson:
        return cls(
            file=str(file) if file else None,
            calls=[
                FlexCallJson(
                    kernel_options=dict(call.options),
                    tunings=[
                        fill(FlexTuningJson, choice, choice=choice.label, hash=choice.hash or None)
                        for choice in call.choices
                    ],
                )
                for call in found.calls
            ],
            **_remarks_json(found),
        )


class ExportJson(Document, tag="rocm-tui/export/1"):
    """What `export -o FILE` wrote."""

    file: str
    pins: list[str]
    left_out: list[LeftOutJson]
    notes: list[NoteJson]


def _print_written(
    args: ExportOptions, pins: Sequence[SharedPin], lookup: LookupTable | None = None
) -> None:
    if args.output is None:
        return
    if not args.json:
        say.out(f"wrote {counted(len(pins), 'pin')} to {plain(str(args.output))}")
        return
    ids = [pin.id for pin in pins]
    say.out_json(ExportJson(file=str(args.output), pins=ids, **_remarks_json(lookup)))


@click.command()
@click.argument("file", metavar="FILE", type=common.FILE)
@click.argument("ids", metavar="[ID]...", nargs=-1)
@common.flag("--yes", "Import the pins; nothing is changed without it.")
@common.repeatable(
    "table",
    "--table",
    metavar="TABLE",
    help="Put pins of table entries into this tuned table",
    type=common.FILE,
)
@common.worker_options
def import_command(
    file: Path,
    ids: Sequence[str],
    yes: bool,
    table: Sequence[Path],
    python: str | None,
    cache_dir: Path | None,
    json: bool,
) -> int:
    """Check the pins of FILE against this machine, and import them with --yes.

    With ID, only the pins of these tunings. Exit code 1 if one of them cannot be used here: then
    nothing is changed.

    Example: rocm-tui import pins.json --yes
    """
    layout = common.layout_at(cache_dir)
    plan = plan_import(file, ids, layout, python, table)
    if not plan.steps:
        if json:
            say.out_json(ImportJson.of(plan, applied=False))
        say.err(f"{file} holds no pins")
        return ExitCode.NO
    _print_differences(plan)
    if not json:
        cells = [_step_cells(step) for step in plan.steps]
        say.out(plain_table(("id", "op", "choice", "what", ""), cells))
    if yes and plan.fits:
        done = apply_import(plan, layout)
        say.err(f"{done} imported" if done else "every pin is here already")
    elif not plan.fits:
        say.err("nothing was changed; name the IDs that fit to import only those")
    elif plan.changes:
        say.err("nothing was changed; --yes does it")
    if json:
        say.out_json(ImportJson.of(plan, applied=yes and plan.fits))
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


def _step_cells(step: ImportStep) -> tuple[str, ...]:
    return (
        step.pin.id,
        plain(op_label(step.pin.op)),
        fmt.shorten(plain(step.pin.label or step.pin.hash), 40),
        step.action,
        plain(step.detail),
    )


class DifferenceJson(JsonObject):
    """What differs between this machine and the one that pins come from."""

    host: str | None
    field: str
    there: str | None
    here: str | None
    refuses: bool
    why: str


class ImportedPinJson(JsonObject):
    """What an import does with a pin."""

    id: str
    op: str
    hash: str
    label: str
    action: str
    detail: str
    numbers: int
    graphs: int


class ImportJson(Document, tag="rocm-tui/import/1"):
    applied: bool
    by: str
    when: float
    differences: list[DifferenceJson]
    pins: list[ImportedPinJson]

    @classmethod
    def of(cls, plan: ImportPlan, *, applied: bool) -> ImportJson:
        return fill(
            cls,
            plan.share,
            applied=applied,
            differences=[
                fill(DifferenceJson, difference, host=there.host)
                for there, differences in plan.differences.items()
                for difference in differences
            ],
            pins=[fill(ImportedPinJson, step, step.pin) for step in plan.steps],
        )


_MOST_RANKS = 1_000_000


def _check(args: AgreeOptions) -> None:
    """Raises UsageError."""
    seconds_given(args.budget, "--budget")
    if args.ranks is not None and not 1 <= args.ranks <= _MOST_RANKS:
        raise UsageError(f"--ranks is how many ranks there must be, 1 to {_MOST_RANKS:,}")
    for given, name, wanted, needed in (
        (args.yes, "--yes", args.pin, "--pin"),
        (args.output is not None, "--output", args.pin and args.yes, "--pin --yes"),
        (args.budget is not None, "--budget", args.measure, "--measure"),
        (args.force, "--force", args.propose or args.pin or args.measure, "--propose"),
    ):
        if given and not wanted:
            raise UsageError(f"{name} goes with {needed}")


@dataclass(frozen=True, slots=True)
class AgreeOptions:
    """The options of `agree`."""

    paths: Sequence[str]
    ranks: int | None
    job: str
    across: bool
    propose: bool
    measure: bool
    budget: float | None
    pin: bool
    yes: bool
    output: Path | None
    force: bool
    device: str | None
    python: str | None
    cache_dir: Path | None
    json: bool


@dataclass(frozen=True, slots=True)
class _Settled:
    """What --pin would do, or did."""

    steps: Sequence[PinStep]
    pinned: Sequence[Pinned] = ()
    done: bool = False


@click.command()
@click.argument("paths", metavar="[PATH]...", type=common.SOURCE, nargs=-1)
@common.number("--ranks", None, "Expect this number of ranks.")
@click.option(
    "job", "--run", default="", metavar="RUN", help="Check this run (default: the latest)."
)
@common.flag("--across", "Also compare tunings of systems that differ, such as MI300X and MI308X.")
@common.flag(
    "--propose", "Propose one choice for all: by cold measurements, else by the times of all."
)
@common.flag(
    "--measure", "Measure the choices that differ first, with cold caches; implies --propose."
)
@common.seconds(
    "--budget", "With --measure, spend this long on each problem, compiling excluded", "30"
)
@common.flag("--pin", "Print which proposals would be pinned; pin them with --yes.")
@common.flag("--yes", "With --pin, pin them.")
@click.option(
    "--output",
    "-o",
    type=common.FILE,
    metavar="FILE",
    help="With --pin --yes, write the pins to a file that other hosts import.",
)
@common.flag("--force", "Also propose choices that some ranks were not offered.")
@common.device_option
@common.worker_options
def agree_command(**given: Any) -> int:
    """Find the problems for which ranks of a run, or hosts, took different choices.

    PATH is a cache directory, a session's log, a cache file, a log, an export of pins, a session of
    the cache directory, or - for stdin (default: the ranks of the latest run in the cache
    directory).

    Exit codes: 0 all agree, 1 some do not, a rank is missing, or nothing could be compared; with
    --pin --yes: 0 every difference is pinned; 2 bad usage.

    Example: rocm-tui agree --measure --pin
    """
    args = AgreeOptions(**given)
    _check(args)
    common.report_settings()
    layout = common.layout_at(args.cache_dir)
    selections = find_selections(layout, args.paths, args.job)
    say.err(*trouble_lines(selections.problems))
    agreed = _agreement(args, selections)
    if args.measure:
        selections = _measure(args, layout, selections, agreed)
        agreed = _agreement(args, selections)
    asked = args.propose or args.measure or args.pin
    proposals = [propose(each, force=args.force) for each in agreed.differing if asked]
    if not args.json:
        _print_agreement(selections, agreed, proposals)
    settled = (
        _pin_proposals(args, layout, selections, proposals) if args.pin and proposals else None
    )
    if args.pin and not proposals:
        say.err("nothing differs, so nothing is pinned or written")
    if args.json:
        pins = UNSET if settled is None else _pins_json(settled)
        say.out_json(agree_text.AgreementJson.of(agreed, proposals, selections.running, pins))
    if args.pin and args.yes and settled is not None:
        every = all(step.wanted is not None for step in settled.steps)
        lost = agreed.missing or agreed.lacking
        return ExitCode.of(every and not lost and all(pin.done for pin in settled.pinned))
    return ExitCode.of(agreed.agree)


def _agreement(args: AgreeOptions, selections: Selections) -> Agreement:
    return agreement(selections.choosers, selections.all, ranks=args.ranks or 0, across=args.across)


def _print_agreement(
    selections: Selections, found: Agreement, proposals: Sequence[Proposal]
) -> None:
    if found.differing:
        say.out(agree_text.text(found, proposals, say.width()) + "\n")
    for line in agree_text.footer(found, selections.running):
        say.out(hanging("", line))
    if found.differing and not proposals:
        say.out(agree_text.TO_PROPOSE)


def _measure(
    args: AgreeOptions, layout: Layout, selections: Selections, found: Agreement
) -> Selections:
    """Measure the choices that have no cold measurement, and report each result."""
    wanted = [
        each
        for each in found.differing
        if each.measurement is None or each.measurement.caches != "cold"
    ]
    if not wanted:
        return selections
    work = Work(layout, args.python, args.device)
    measurements = []
    results = measure_chosen(wanted, work, budget=args.budget)
    for number, each in enumerate(wanted, start=1):
        title = f"{problem_title(each.row.tuning)} ({number} of {len(wanted)})"
        with work.line.during(title):
            result = next(results)
        if result.measurement is None:
            say.err(f"{each.row.id} was not measured: {result.reason}")
        else:
            measurements.append(result.measurement)
    return replace(selections, all=tuple(with_measured(selections.all, measurements)))


def _pin_proposals(
    args: AgreeOptions, layout: Layout, selections: Selections, proposals: Sequence[Proposal]
) -> _Settled:
    model = selections.home or load_model(layout)
    steps = plan_pins(proposals, model, layout)
    for step in steps:
        if step.why_not:
            say.err(f"{step.proposal.differing.row.id} is not pinned: {step.why_not}")
    ready = [step for step in steps if step.wanted is not None]
    if not args.yes:
        if not args.json:
            for step in ready:
                say.out(hanging("", _would(step)))
        say.err("nothing was changed; --yes does it" if ready else "nothing can be pinned")
        return _Settled(steps)
    notes = [_note(step.proposal) for step in ready]
    pinned = pin_all(ready, notes, layout)
    for step in ready:
        _warn(step)
    if not args.json:
        for pin in pinned:
            say.out(f"pinned {plain(pin.choice.label)} for {pin.report.pin.id}, {pin.state}")
    if ready and args.output is not None:
        ids = [step.wanted.row.id for step in ready if step.wanted]
        _write_pins(args.output, pins_to_share(layout, ids, (), args.python))
    if ready and not args.json:
        for line in _next(args, layout, len(pinned)):
            say.out(hanging("", line))
    return _Settled(steps, pinned, done=True)


def _note(proposal: Proposal) -> str:
    """Return the note of the pin for the history."""
    all_ = [each.by for each in proposal.differing.selections]
    ranked = all(selection.rank is not None for selection in all_)
    over = counted(len(all_), "rank") if ranked else agree_text.who(all_)
    return f"agreed over {over}: {agree_text.basis(proposal)}"


def _would(step: PinStep) -> str:
    assert step.wanted is not None and step.plan is not None
    what = f"{plain(step.wanted.choice.label)} for {step.wanted.row.id}"
    if step.held:
        return f"{what} is pinned already"
    old = step.plan.replaces
    instead = f" instead of {plain(old.label or old.hash)}" if old is not None else ""
    graphs = counted(len(step.plan.graphs), "compiled graph is", "compiled graphs are")
    return f"would pin {what}{instead}: {graphs} moved aside"


def _warn(step: PinStep) -> None:
    """Print the warnings that `pin` prints."""
    if step.wanted is None:
        return
    row, choice = step.wanted.row, step.wanted.choice
    if lacking := step.proposal.unoffered:
        names = agree_text.who(lacking)
        say.err(f"{row.id}: {names} may not be offered it, and then take their own best")
    for warning in (pin_warning(row.tuning, choice), output_warning(row, choice)):
        if warning:
            say.err(f"{row.id}: {warning}")


def _next(args: AgreeOptions, layout: Layout, count: int) -> list[str]:
    """Return the next steps on the other hosts, and how to undo the pins."""
    lines = []
    folders = [path for path in map(Path, args.paths) if path.is_dir()]
    others = [path for path in folders if path.resolve() != layout.root.resolve()]
    if args.output is not None:
        file = plain(shlex.quote(str(args.output)))
        lines.append(f"wrote {file}. On every host that has a cache dir of its own:")
        lines += [f"  rocm-tui import {file} --yes{_at(other)}" for other in others] or [
            f"  rocm-tui import {file} --yes"
        ]
    if count:
        lines.append(f"`{ShellCommands(layout).undo()}` undoes {noun(count, 'it', 'them all')}.")
    agree = ShellCommands(layout).line("agree")
    lines.append(f"Run the ranks again, then `{agree}`: what runs now keeps its choices.")
    return lines


def _at(folder: Path) -> str:
    return f" --cache-dir {plain(shlex.quote(str(folder)))}"


def _pins_json(settled: _Settled) -> AgreedPinsJson:
    states = {pin.report.pin.id: pin.state for pin in settled.pinned}
    pins = [
        AgreedPinJson(
            id=step.proposal.differing.row.id,
            hash=step.wanted.hash if step.wanted else None,
            held=step.held,
            state=states.get(step.wanted.row.id) if step.wanted else None,
            why_not=step.why_not or None,
        )
        for step in settled.steps
    ]
    return AgreedPinsJson(applied=settled.done, pins=pins)
