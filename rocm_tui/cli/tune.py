"""`rocm-tui tune`: run Inductor's own tuning of an op again, in a worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import click

from backend.counted import counted, device_ranges, noun
from backend.disk.layout import Layout
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
from rocm_tui.cli.work import Work, with_log
from rocm_tui.environment import CPU
from rocm_tui.errors import NoSuchTuning, RocmTuiError, UsageError
from rocm_tui.fleet.units import Asked
from rocm_tui.harmless import plain
from rocm_tui.jobs.tune import SPACES, SingleChoice, TuneOptions, problem_of, tune, words_of
from rocm_tui.render.jobs import problem_title
from rocm_tui.render.problems import trouble_lines
from rocm_tui.render.tuning_json import TuningJson
from rocm_tui.render.tunings import tunings_text
from rocm_tui.session.model import Model, Row


@click.command()
@click.argument("words", metavar="[OP SHAPE... | ID...]", nargs=-1)
@click.option("--dtype", metavar="TYPE", help="bf16, f32, ...; one for all, or a,b per operand.")
@click.option("--strides", metavar="S,S", help="One per operand: 32768x256x1,49152x192x1.")
@click.option("--precision", metavar="NAME", help="Of float32 products: highest, high or medium.")
@click.option(
    "--from-log",
    type=common.SOURCE,
    multiple=True,
    metavar="FILE",
    help="Tune the problems of a log, cache file, export or tuned table (repeatable).",
)
@click.option("--all", is_flag=True, help="Tune all problems of the cache directory and --from.")
@click.option("--backends", metavar="A,B", help="Only these: ATEN, TRITON, CPP, CK, ...")
@click.option("--search-space", type=click.Choice(SPACES), help="How many configs to try.")
@click.option(
    "--templates/--no-templates",
    default=None,
    help="Offer our templates (default: if the tuning had them).",
)
@click.option(
    "--budget", type=float, metavar="SECONDS", help="Skip choices that are not timed by then."
)
@common.device_option
@click.option(
    "--all-devices",
    is_flag=True,
    help="Keep the times for all GPUs of that kind here; their own times stay.",
)
@click.option(
    "--fleet", multiple=True, metavar="WORDS", help="Tune on local, local:4, local:cpu or ray."
)
@click.option("--missing", is_flag=True, help="With --fleet: skip what the cache has times for.")
@click.option("--repeat", type=int, default=1, metavar="N", help="Tune each problem on N devices.")
@click.option("device_class", "--class", metavar="CLASS", help="Of unlike devices: which to keep.")
@click.option(
    "--compile-only", metavar="ARCH[:UNITS]", help="Compile our templates for gfx942[:228] only."
)
@click.option(
    "--tunableop",
    is_flag=True,
    help="Tune the products of untuned lists or logs with PyTorch's TunableOp.",
)
@click.option(
    "--output",
    "-o",
    type=common.FILE,
    metavar="RESULTS.csv",
    help="With --tunableop: its table, to which rows are added.",
)
@click.option("--force", is_flag=True, help="With --tunableop: also tune products that have a row.")
@click.option("--dry-run", is_flag=True, help="List the problems, and tune nothing.")
@common.from_option
@common.python_option
@common.cache_dir_option
@common.json_option
def tune_command(**given: Any) -> int:
    """Run Inductor's autotuning of an op in a worker.

    The times go into the persistent cache under the key that a model's own tuning has, so its next
    compile benchmarks nothing. Compiled graphs keep their kernels; pins stay.

    \b
    rocm-tui tune bmm 8x128x256 8x256x192 --dtype bf16
    rocm-tui tune ID...
    rocm-tui tune --from-log FILE [ID...]
    rocm-tui tune --tunableop -o RESULTS.csv UNTUNED.csv...
    """
    args = CommandArguments(**given)
    layout = common.layout_of(args)
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
    if args.missing and not args.fleet:
        raise UsageError("--missing goes with --fleet")
    if args.fleet:
        from rocm_tui.cli.tune_fleet import tune_on_fleet  # with what a fleet needs

        return tune_on_fleet(args, layout, options, lambda: _problems(args, layout))
    if args.all_devices and args.device == CPU:
        raise UsageError("--all-devices is for GPUs, not for --device cpu")
    problems = _problems(args, layout)
    if args.dry_run:
        return list_problems(problems, args.json)
    tuned: list[Tuning] = []
    failed: list[tuple[Problem, str]] = []
    single: list[tuple[Problem, str]] = []
    if args.all_devices:
        options = for_all_devices(Work(layout, args.python, None, warm=False), options)
        if not options.others:
            say.err("--all-devices: there is no other GPU of this kind here")
    work = Work(layout, args.python, args.device)
    for asked in problems:
        try:
            tuned.append(_tune(work, asked.problem, replace(options, templates=asked.ours)))
        except SingleChoice as error:
            single.append((asked.problem, str(error)))
        except RocmTuiError as error:
            failed.append((asked.problem, with_log(error)))
    _print(layout, tuned, failed, single, args.json, options.others)
    return ExitCode.of(bool(problems) and not failed)


def _problems(args: CommandArguments, layout: Layout) -> list[Asked]:
    """Each problem to tune. Raises UsageError, NoSuchTuning, NoSuchSource."""
    words, logs = args.words, args.from_log
    if is_op(words) and not logs:
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
    """What the files of `--from-log` tell of, or its IDs. Raises NoSuchTuning, NoSuchSource."""
    from rocm_tui.actions.untuned import told_by, with_told  # with what reads other tuners' files

    def make(problem: Problem, calls: float) -> Asked:
        if args.device == "cpu" and problem.key is None:
            problem = replace(problem, device="cpu")
        return Asked(problem, bool(args.templates), problem_title(problem), calls=calls)

    told = told_by(args.from_log)
    for line in filter(None, (file.left_out for file in told)):
        say.err(plain(line))
    ids = {problem.id for file in told for problem in file.asks.problems}
    words = [word for word in args.words if word not in ids]
    logs = [file.path for file in told if file.is_log]
    if words and not logs:
        raise NoSuchTuning(f"these files have no problem with the id {plain(words[0])}")
    rows: list[Row] = []
    if logs and (words or not args.words):
        rows = _rows(_read(layout, logs, []), words, args.all)
    elif logs:
        _read(layout, logs, [])
    both = with_told([_asked(row, args.templates) for row in rows], told, make)
    wanted = {*args.words, *(row.id for row in rows)}
    return [one for one in both if not args.words or one.problem.id in wanted]


def _read(layout: Layout, logs: Sequence[str], also: Sequence[str]) -> Model:
    """Raises NoSuchSource."""
    model = load_model(layout, logs, also=also)
    require_read(model, logs)
    for line in trouble_lines(model.problems):
        say.err(line)
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


def list_problems(problems: Sequence[Asked], as_json: bool) -> int:
    if as_json:
        say.out_json({"problems": [_words_of(asked) for asked in problems]})
    for asked in () if as_json else problems:
        problem = asked.problem
        name = f"{problem.id}  {asked.title}" if problem.key or asked.calls else asked.title
        times = f"  asked for {counted(round(asked.calls), 'time')}" if asked.calls else ""
        say.out(f"{name}{times}  with our kernels" if asked.ours else f"{name}{times}")
    return ExitCode.of(bool(problems))


def _words_of(asked: Asked) -> dict[str, Any]:
    calls = {"calls": round(asked.calls)} if asked.calls else {}
    return {**words_of(asked.problem), **calls}


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
        document: dict[str, Any] = {"tunings": [TuningJson.of(row) for row in rows]}
        for name, left in (("failed", failed), ("single", single)):
            document[name] = [{"problem": words_of(one), "reason": why} for one, why in left]
        say.out_json(document)
    elif rows:
        say.out(tunings_text(rows))
        indices = {device.tuning.device_index for row in rows for device in row.devices}
        if kept := [index for index in others if index in indices]:
            gpus = f"{noun(len(kept), 'GPU')} {device_ranges(kept)}"
            say.out(f"The times are kept for {gpus} too, where PyTorch need not tune.")
    for problem, why in failed:
        say.err(f"{problem_title(problem)} was not tuned: {why}")
    for problem, why in single:
        say.err(f"{problem_title(problem)} has one choice, and is done without tuning: {why}")
