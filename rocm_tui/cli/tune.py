"""`rocm-tui tune`: run Inductor's own tuning of an op again, in a worker."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from backend.disk.layout import Layout
from backend.model.problem import Problem
from backend.model.tuning import Tuning
from rocm_tui import say
from rocm_tui.actions.pick import load_model, pick_row, require_read
from rocm_tui.actions.tune import (
    SPACES,
    TuneOptions,
    distinct,
    is_op,
    offers_ours,
    problem_of,
    tune,
    tune_options,
    typed_problem,
    words_of,
)
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.cli.work import Work, with_log
from rocm_tui.errors import RocmTuiError, UsageError
from rocm_tui.render.jobs import problem_title
from rocm_tui.render.problems import troubles
from rocm_tui.render.tunings import row_json, tunings_text


def add_tune(parser: argparse.ArgumentParser) -> None:
    parser.usage = (
        "rocm-tui tune [options] (OP SHAPE... --dtype T | ID... | --from-log FILE [ID...])"
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
        help="tune every problem that this log names, or the IDs of it (may be repeated)",
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
    parser.add_argument("--dry-run", action="store_true", help="list the problems, tune none")
    common.add_arguments(parser, "--from", "--python", "--cache-dir", "--json")


def do_tune(args: argparse.Namespace) -> int:
    layout = common.layout_of(args)
    options = tune_options(
        backends=args.backends,
        search_space=args.search_space,
        templates=bool(args.templates),
        budget=args.budget,
        device=args.device,
        budget_name="--budget",
    )
    problems = _problems(args, layout)
    if args.dry_run:
        return _list(problems, args.json)
    tuned: list[Tuning] = []
    failed: list[tuple[Problem, str]] = []
    work = Work(layout, args.python, args.device)
    for problem, ours in problems:
        try:
            tuned.append(_tune(work, problem, replace(options, templates=ours)))
        except RocmTuiError as error:
            failed.append((problem, with_log(error)))
    _print(layout, tuned, failed, args.json)
    return ExitCode.of(bool(tuned) and not failed)


def _problems(args: argparse.Namespace, layout: Layout) -> list[tuple[Problem, bool]]:
    """Each problem to tune, and whether our kernels shall be offered."""
    words, logs = args.words, args.from_log
    if is_op(words) and not logs:
        typed = typed_problem(
            words,
            dtype=args.dtype,
            strides=args.strides,
            device="cpu" if args.device == "cpu" else "cuda" if args.device else None,
            precision=args.precision,
        )
        return [(typed, bool(args.templates))]
    if args.dtype or args.strides or args.precision:
        given = [f"--{name}" for name in ("dtype", "strides", "precision") if getattr(args, name)]
        raise UsageError(f"{given[0]} goes with OP SHAPE...; an ID or a log has its own")
    if not words and not logs:
        raise UsageError("say what to tune: OP SHAPE... --dtype TYPE, an ID, or --from-log FILE")
    model = load_model(layout, logs) if logs else load_model(layout, also=args.sources)
    require_read(model, logs)
    for trouble in troubles(model.problems):
        say.err(trouble.line())
    tunings = [
        row.tuning for row in [pick_row(model, word) for word in words] or distinct(model.rows())
    ]
    wanted: bool | None = args.templates
    return [
        (problem_of(tuning), offers_ours(tuning) if wanted is None else wanted)
        for tuning in tunings
    ]


def _tune(work: Work, problem: Problem, options: TuneOptions) -> Tuning:
    """The tuning with its times. Raises RocmTuiError."""
    with work.line.during(problem_title(problem)):
        return tune(work, problem, options)


def _list(problems: Sequence[tuple[Problem, bool]], as_json: bool) -> int:
    if as_json:
        say.out_json({"problems": [words_of(problem) for problem, _ in problems]})
    for problem, ours in () if as_json else problems:
        name = f"{problem.id}  {problem_title(problem)}" if problem.key else problem_title(problem)
        say.out(f"{name}  with our kernels" if ours else name)
    return ExitCode.of(bool(problems))


def _print(
    layout: Layout, tuned: Sequence[Tuning], failed: Sequence[tuple[Problem, str]], as_json: bool
) -> None:
    """The lines that `ls` has for what was tuned, read back from the cache dir."""
    model = load_model(layout)
    rows = [pick_row(model, tuning.id) for tuning in tuned]
    if as_json:
        reasons = [{"problem": words_of(problem), "reason": why} for problem, why in failed]
        say.out_json({"tunings": [row_json(row) for row in rows], "failed": reasons})
    elif rows:
        say.out(tunings_text(rows))
    for problem, why in failed:
        say.err(f"{problem_title(problem)} was not tuned: {why}")
