"""`rocm-tui tune`: run Inductor's own tuning of an op again, in a worker."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend.counted import counted, device_ranges, noun
from backend.disk.layout import Layout
from backend.model.problem import Problem
from backend.model.tuning import Tuning
from rocm_tui import say
from rocm_tui.actions.fleet import Asked
from rocm_tui.actions.pick import load_model, pick_row, require_read
from rocm_tui.actions.tune import (
    distinct,
    for_all_devices,
    is_op,
    offers_ours,
    tune_options,
    typed_problem,
)
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.cli.work import Work, with_log
from rocm_tui.environment import CPU
from rocm_tui.errors import NoSuchTuning, RocmTuiError, UsageError
from rocm_tui.harmless import plain
from rocm_tui.jobs.tune import SPACES, SingleChoice, TuneOptions, problem_of, tune, words_of
from rocm_tui.render.jobs import problem_title
from rocm_tui.render.problems import trouble_lines
from rocm_tui.render.tunings import row_json, tunings_text
from rocm_tui.session.model import Model, Row


def add_tune(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "rocm-tui tune [options] (OP SHAPE... --dtype T | ID... | --from-log FILE [ID...] | --all)"
        "\nrocm-tui tune --fleet WORDS [--resume [RUN]] [options] [...]"
        "\nrocm-tui tune --tunableop -o RESULTS.csv UNTUNED.csv..."
    )
    parser.description = (
        "Run Inductor's autotuning of an op in a worker. The times go into the persistent cache "
        "under the key that a model's own tuning has, so its next compile benchmarks nothing. "
        "Graphs that are compiled already keep their kernels; pins stay."
    )
    parser.add_argument(
        "words", nargs="*", metavar="OP SHAPE... | ID", help="bmm 8x128x256 8x256x192"
    )
    parser.add_argument(
        "--dtype", metavar="TYPE", help="bf16, f32, ...; one, or one an operand: a,b"
    )
    parser.add_argument("--strides", metavar="S,S", help="of each operand: 32768x256x1,49152x192x1")
    parser.add_argument("--precision", help="of float32 products: highest, high or medium")
    parser.add_argument(
        "--from-log",
        action="append",
        default=[],
        metavar="FILE",
        help="tune every problem that this file names, or the IDs of it: a log, a cache file, an "
        "export, TunableOp's or AITER's table, hipBLASLt's log (may be repeated)",
    )
    parser.add_argument(
        "--all", action="store_true", help="tune all that the cache dir, and --from, tell of"
    )
    parser.add_argument("--backends", metavar="A,B", help="only these: ATEN, TRITON, CPP, CK, ...")
    parser.add_argument("--search-space", choices=SPACES)
    parser.add_argument(
        "--templates",
        action=argparse.BooleanOptionalAction,
        help="offer rocm-tui's templates (default: if the tuning had them)",
    )
    parser.add_argument(
        "--budget", type=float, metavar="SECONDS", help="leave out what is not timed by then"
    )
    common.add_arguments(parser, "--device")
    parser.add_argument(
        "--all-devices",
        action="store_true",
        help="keep the times for all GPUs of that kind here, which then need not tune; times that "
        "another GPU measured itself stay",
    )
    fleet = parser.add_argument_group("on many devices (docs/fleet.md)")
    fleet.add_argument(
        "--fleet",
        action="append",
        default=[],
        metavar="WORDS",
        help="tune on these: local, local:4, ssh://host, ray (may be repeated)",
    )
    fleet.add_argument(
        "--resume", nargs="?", const="", metavar="RUN", help="go on with a run (default: the last)"
    )
    fleet.add_argument(
        "--repeat", type=int, default=1, metavar="N", help="tune each problem on N devices"
    )
    fleet.add_argument(
        "--split",
        type=float,
        metavar="SECONDS",
        help="split what may take longer: heats of some choices on any devices, a final on one",
    )
    fleet.add_argument(
        "--canary",
        action=argparse.BooleanOptionalAction,
        help="let each device tune one short problem first, which finds slow ones (default: where "
        "there are several)",
    )
    fleet.add_argument(
        "--class",
        dest="device_class",
        metavar="CLASS",
        help="of unlike devices those whose times get into the cache: gfx942, 304 CUs, or the "
        "first digits of a system hash (default: what most are)",
    )
    fleet.add_argument(
        "--compile-only",
        metavar="ARCH[:UNITS]",
        help="tune nothing: compile what workers on such a GPU will want of rocm-tui's templates, "
        "without one: gfx942, gfx942:228 (compute units)",
    )
    table = parser.add_argument_group("TunableOp's own tuning (docs/tables.md)")
    table.add_argument(
        "--tunableop",
        action="store_true",
        help="let PyTorch's TunableOp tune the products of untuned lists, or of logs, on a GPU",
    )
    table.add_argument(
        "-o", "--output", type=Path, metavar="RESULTS.csv", help="its table, to which rows are put"
    )
    table.add_argument(
        "--force", action="store_true", help="tune those again that have a row there"
    )
    parser.add_argument("--dry-run", action="store_true", help="list the problems, tune none")
    common.add_arguments(parser, "--from", "--python", "--cache-dir", "--json")


def do_tune(args: argparse.Namespace) -> int:
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
    if args.all_devices and (args.fleet or args.resume is not None):
        raise UsageError("--all-devices goes without --fleet")
    if args.compile_only is not None and not args.fleet:
        raise UsageError("--compile-only goes with --fleet: local:cpu:4, ...")
    if args.fleet or args.resume is not None:
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


def _problems(args: argparse.Namespace, layout: Layout) -> list[Asked]:
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


def _of_logs(args: argparse.Namespace, layout: Layout) -> list[Asked]:
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
        document: dict[str, Any] = {"tunings": [row_json(row) for row in rows]}
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
