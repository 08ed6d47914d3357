"""`rocm-tui tune`: run Inductor's own tuning of an op again, in a worker."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click
from msgspec import UNSET, UnsetType

from backend.counted import counted, device_ranges, noun
from backend.disk.layout import Layout
from backend.errors import StoreError
from backend.model.problem import Problem
from backend.model.tuning import Tuning
from rocm_tui import say
from rocm_tui.actions.sources import load_model, pick_row, require_read
from rocm_tui.actions.tune import (
    distinct,
    for_all_devices,
    is_op,
    offers_ours,
    tune_options,
    typed_problem,
)
from rocm_tui.cli import common
from rocm_tui.cli.common import CommandArguments, ExitCode
from rocm_tui.cli.work import Work
from rocm_tui.environment import CPU
from rocm_tui.errors import NoSuchTuning, RocmTuiError, UsageError
from rocm_tui.fleet.units import Asked
from rocm_tui.harmless import plain
from rocm_tui.jobs.tune import SPACES, SingleChoice, TuneOptions, problem_of, tune, words_of
from rocm_tui.json_output import Document, JsonObject
from rocm_tui.render.jobs import problem_title, skipped_text
from rocm_tui.render.problems import trouble_lines
from rocm_tui.render.tuning_json import TuningJson
from rocm_tui.render.tunings import tunings_text
from rocm_tui.session.model import Model, Row


class ProblemToTuneJson(JsonObject):
    """A problem: by its key in the cache, or by its shapes and types."""

    op: str
    inputs: str | UnsetType = UNSET
    precision: str | UnsetType | None = UNSET
    shapes: list[list[int]] | UnsetType = UNSET
    dtypes: list[str] | UnsetType = UNSET
    strides: list[list[int]] | UnsetType = UNSET
    device: str | UnsetType = UNSET
    threads: int | UnsetType = UNSET
    calls: int | UnsetType = UNSET


class ProblemsToTuneJson(Document, tag="rocm-tui/tune-problems/1"):
    problems: list[ProblemToTuneJson]


class NotTunedJson(JsonObject):
    problem: ProblemToTuneJson
    reason: str

    @classmethod
    def of(cls, problem: Problem, reason: str) -> NotTunedJson:
        return cls(problem=ProblemToTuneJson(**words_of(problem)), reason=reason)


class TunedJson(Document, tag="rocm-tui/tune/1"):
    """The tunings as the cache has them now; `single` have one choice and need no tuning."""

    tunings: list[TuningJson]
    failed: list[NotTunedJson]
    single: list[NotTunedJson]


@click.command()
@click.argument("words", metavar="[OP SHAPE... | ID...]", nargs=-1)
@click.option(
    "--dtype", metavar="TYPE", help="Use bf16, f32, ...: one for all, or a,b per operand."
)
@click.option(
    "--strides", metavar="S,S", help="Use these strides, one per operand: 32768x256x1,49152x192x1."
)
@click.option(
    "--precision", metavar="NAME", help="Multiply float32 in highest, high or medium precision."
)
@common.repeatable(
    "--from-log",
    metavar="FILE",
    help="Tune the problems of a log, cache file, export or tuned table",
    type=common.SOURCE,
)
@common.flag("--all", "Tune all problems of the cache directory and --from.")
@click.option("--backends", metavar="A,B", help="Try only these: ATEN, TRITON, CPP, CK, ...")
@click.option("--search-space", type=click.Choice(SPACES), help="Try the usual configs, or all.")
@click.option(
    "--templates/--no-templates",
    default=None,
    help="Offer our templates (default: if the tuning had them).",
)
@common.seconds("--budget", "Skip choices that are not timed by then.")
@common.device_option
@common.flag(
    "--all-devices", "Keep the times for all GPUs of that kind here; their own times stay."
)
@click.option(
    "--fleet",
    multiple=True,
    metavar="WORDS",
    help="Tune on several devices: local, local:4, local:cpu or ray.",
)
@common.flag("--missing", "With --fleet, skip problems that have times in the cache.")
@common.number("--repeat", 1, "Tune each problem on N devices.")
@click.option(
    "device_class",
    "--class",
    metavar="CLASS",
    help="With --fleet, keep the times of this class of device.",
)
@click.option(
    "--compile-only",
    metavar="ARCH[:UNITS]",
    help="Compile our templates for gfx942 or gfx942:228, and time nothing.",
)
@common.flag("--tunableop", "Tune the products of untuned lists or logs with PyTorch's TunableOp.")
@click.option(
    "--output",
    "-o",
    type=common.FILE,
    metavar="RESULTS.csv",
    help="With --tunableop, add the results to this table.",
)
@common.flag("--force", "With --tunableop, also tune products that have a row.")
@common.flag("--dry-run", "List the problems, and tune nothing.")
@common.from_option
@common.worker_options
def tune_command(**given: Any) -> int:
    """Run Inductor's autotuning of an op in a worker.

    The times go into the persistent cache under the key that a model's own tuning has, so its next
    compile benchmarks nothing. Compiled graphs keep their kernels; pins stay.

    \b
    Examples:
    rocm-tui tune bmm 8x128x256 8x256x192 --dtype bf16
    rocm-tui tune ID...
    rocm-tui tune --from-log FILE [ID...]
    rocm-tui tune --tunableop -o RESULTS.csv UNTUNED.csv...
    """
    args = CommandArguments(**given)
    layout = common.layout_at(args.cache_dir)
    if args.tunableop:
        from rocm_tui.cli.tune_tunableop import tune_tunableop  # with what reads tables

        return tune_tunableop(args, layout)
    if args.output is not None or args.force:
        raise UsageError("-o and --force go with --tunableop")
    options = tune_options(
        backends=args.backends,
        search_space=args.search_space,
        templates=bool(args.templates),
        budget=args.budget,
        device=args.device,
        budget_name="--budget",
    )
    if args.all_devices and args.fleet:
        raise UsageError("--all-devices goes without --fleet")
    if args.compile_only is not None and not args.fleet:
        raise UsageError("--compile-only goes with --fleet: local:cpu:4, ...")
    if not args.fleet and (alone := common.options_given("missing repeat device_class")):
        raise UsageError(f"{alone[0]} goes with --fleet")
    if args.fleet:
        from rocm_tui.cli.tune_fleet import tune_on_fleet  # with what a fleet needs

        return tune_on_fleet(args, layout, options, lambda: _problems(args, layout))
    if args.all_devices and args.device == CPU:
        raise UsageError("--all-devices is for GPUs, not for --device cpu")
    problems = _problems(args, layout)
    if args.dry_run:
        listed = ProblemsToTuneJson([_problem_json(asked) for asked in problems])
        return common.print_list(listed, [_problem_line(each) for each in problems], args.json)
    tuned: list[Tuning] = []
    failed: list[tuple[Problem, str]] = []
    single: list[tuple[Problem, str]] = []
    if args.all_devices:
        options = for_all_devices(Work(layout, args.python, None, warm=False), options)
        if not options.others:
            say.err("--all-devices: there is no other GPU of this kind here")
    work = Work(layout, args.python, args.device)
    try:
        for asked in problems:
            try:
                tuned.append(_tune(work, asked.problem, replace(options, templates=asked.ours)))
            except SingleChoice as error:
                single.append((asked.problem, str(error)))
            except RocmTuiError as error:
                failed.append((asked.problem, str(error)))
    except BaseException:  # Ctrl-C, or a store in another's hands: say what was done before
        with contextlib.suppress(RocmTuiError, StoreError):
            _print(layout, tuned, failed, single, args.json, options.others)
        raise
    _print(layout, tuned, failed, single, args.json, options.others)
    return ExitCode.of(bool(problems) and not failed)


def _problems(args: CommandArguments, layout: Layout) -> list[Asked]:
    """Each problem to tune. Raises UsageError, NoSuchTuning, NoSuchSource."""
    words, logs = args.words, args.from_log
    if logs and args.sources:
        raise UsageError("--from goes without --from-log")
    if words and not logs and args.all:
        raise UsageError("--all tunes all problems, and goes without OP SHAPE... and ID")
    if is_op(words) and not logs:
        if args.sources:
            raise UsageError("--from goes with an ID or --all; OP SHAPE... is a problem")
        typed = typed_problem(
            words,
            dtype=args.dtype,
            strides=args.strides,
            device="cpu" if args.device == "cpu" else "cuda" if args.device else None,
            precision=args.precision,
        )
        return [Asked(typed, bool(args.templates), problem_title(typed))]
    if args.dtype or args.strides or args.precision:
        given = [f"--{name}" for name in ("dtype", "strides", "precision") if getattr(args, name)]
        raise UsageError(f"{given[0]} goes with OP SHAPE...; an ID or a log has its own")
    if not words and not logs and not args.all:
        raise UsageError(
            "say what to tune: OP SHAPE... --dtype TYPE, an ID, --from-log FILE, or --all"
        )
    if logs:
        return _of_logs(args, layout)
    model = _read(layout, [], args.sources)
    return [_asked(row, args.templates) for row in _rows(model, words, args.all)]


def _of_logs(args: CommandArguments, layout: Layout) -> list[Asked]:
    """Return the problems in the files of `--from-log`, or of its IDs.

    Raises NoSuchTuning and NoSuchSource.
    """
    from rocm_tui.actions.untuned import told_by, with_told  # with what reads other tuners' files

    def make(problem: Problem, calls: float) -> Asked:
        if args.device == "cpu" and problem.key is None:
            problem = replace(problem, device="cpu")
        return Asked(problem, bool(args.templates), problem_title(problem), calls=calls)

    files = told_by(args.from_log)
    for line in filter(None, (file.left_out for file in files)):
        say.err(plain(line))
    ids = {problem.id for file in files for problem in file.asks.problems}
    words = [word for word in args.words if word not in ids]
    logs = [file.path for file in files if file.is_log]
    if words and not logs:
        raise NoSuchTuning(f"these files have no problem with the id {plain(words[0])}")
    rows: list[Row] = []
    if logs and (words or not args.words):
        rows = _rows(_read(layout, logs, []), words, args.all)
    elif logs:
        _read(layout, logs, [])
    both = with_told([_asked(row, args.templates) for row in rows], files, make)
    wanted = {*args.words, *(row.id for row in rows)}
    return [request for request in both if not args.words or request.problem.id in wanted]


def _read(layout: Layout, logs: Sequence[str], also: Sequence[str]) -> Model:
    """Raises NoSuchSource."""
    model = load_model(layout, logs, also=also)
    require_read(model, logs)
    say.err(*trouble_lines(model.problems))
    return model


def _rows(model: Model, words: Sequence[str], known: bool) -> list[Row]:
    """Raises NoSuchTuning."""
    return [pick_row(model, word) for word in words] or distinct(model.rows(), known)


def _asked(row: Row, ours: bool | None) -> Asked:
    problem = problem_of(row.tuning)
    offered = offers_ours(row.tuning) if ours is None else ours
    return Asked(problem, offered, problem_title(problem), row)


def _tune(work: Work, problem: Problem, options: TuneOptions) -> Tuning:
    """The tuning with its times. Raises RocmTuiError."""
    with work.line.during(problem_title(problem)):
        return tune(work, problem, options)


def _problem_line(asked: Asked) -> str:
    problem = asked.problem
    name = f"{problem.id}  {asked.title}" if problem.key or asked.calls else asked.title
    times = f"  requested {counted(round(asked.calls), 'time')}" if asked.calls else ""
    return f"{name}{times}  with our kernels" if asked.ours else f"{name}{times}"


def _problem_json(asked: Asked) -> ProblemToTuneJson:
    calls = round(asked.calls) if asked.calls else UNSET
    return ProblemToTuneJson(**words_of(asked.problem), calls=calls)


def _print(
    layout: Layout,
    tuned: Sequence[Tuning],
    failed: Sequence[tuple[Problem, str]],
    single: Sequence[tuple[Problem, str]],
    as_json: bool,
    others: Sequence[int] = (),
) -> None:
    """The lines that `ls` has for what was tuned, read back from the cache dir; and which of the
    GPUs `others` have its times too."""
    model = load_model(layout)
    rows = [pick_row(model, tuning.id) for tuning in tuned]
    if as_json:
        say.out_json(
            TunedJson(
                tunings=[TuningJson.of(row) for row in rows],
                failed=[NotTunedJson.of(*each) for each in failed],
                single=[NotTunedJson.of(*each) for each in single],
            )
        )
    elif rows:
        say.out(tunings_text(rows))
        indices = {device.tuning.device_index for row in rows for device in row.devices}
        if kept := [index for index in others if index in indices]:
            gpus = f"{noun(len(kept), 'GPU')} {device_ranges(kept)}"
            say.out(f"The times are kept for {gpus} too, where PyTorch need not tune.")
    for tuning in tuned:
        if left_out := skipped_text(tuning):
            say.err(f"{problem_title(tuning)}: {left_out}")
    for problem, why in failed:
        say.err(f"{problem_title(problem)} was not tuned: {why}")
    for problem, why in single:
        say.err(f"{problem_title(problem)} has one choice, and is done without tuning: {why}")
