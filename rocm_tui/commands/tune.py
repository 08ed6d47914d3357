"""`rocm-tui tune`: run Inductor's own tuning of an op again, in a worker."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from rocm_tui import say
from rocm_tui.commands import common

if TYPE_CHECKING:
    from backend.model.problem import Problem
    from backend.model.tuning import Tuning
    from backend.store.paths import Layout
    from rocm_tui.actions.tune import TuneOptions
    from rocm_tui.commands.work import Work
    from rocm_tui.session.model import Row


def add(commands: common.Subparsers) -> None:
    parser = commands.add_parser(
        "tune",
        help="tune an op again",
        usage="rocm-tui tune [options] (OP SHAPE... --dtype T | ID... | --from-log FILE [ID...])",
        description="Run Inductor's autotuning of an op in a worker. The times go into the "
        "persistent cache under the key that a model's own tuning has, so its next compile "
        "benchmarks nothing. Graphs that are compiled already keep their kernels; pins stay.",
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
    parser.add_argument("--search-space", choices=("default", "exhaustive"))
    parser.add_argument(
        "--templates",
        action=argparse.BooleanOptionalAction,
        help="offer our kernels too (default: if the tuning had them)",
    )
    parser.add_argument(
        "--budget", type=float, metavar="SECONDS", help="leave out what is not timed by then"
    )
    parser.add_argument("--device", metavar="N", help="a GPU's index, or cpu")
    parser.add_argument("--dry-run", action="store_true", help="list the problems, tune none")
    common.add_from(parser)
    common.add_python(parser)
    common.add_cache_dir(parser)
    common.add_json(parser)


def run(args: argparse.Namespace) -> int:
    from dataclasses import replace

    from rocm_tui.commands.work import Work

    layout = common.layout_of(args)
    options, problems = _options(args), _problems(args, layout)
    if args.dry_run:
        return _list(problems, args.json)
    tuned: list[Tuning] = []
    failed: list[tuple[Problem, str]] = []
    work = Work(layout, args.python, args.device)
    for problem, ours in problems:
        what = _tune(work, problem, replace(options, templates=ours))
        if isinstance(what, str):
            failed.append((problem, what))
        else:
            tuned.append(what)
    _tell(layout, tuned, failed, args.json)
    return 0 if tuned and not failed else 1


def _options(args: argparse.Namespace) -> TuneOptions:
    from rocm_tui.actions.tune import TuneOptions, backends
    from rocm_tui.devices import device_env
    from rocm_tui.errors import UsageError

    if args.budget is not None and not 0 < args.budget < 1e9:
        raise UsageError("--budget is a number of seconds above 0")
    device_env(os.environ, args.device)
    return TuneOptions(
        backends=backends(args.backends),
        search_space=args.search_space,
        templates=bool(args.templates),
        budget=args.budget,
    )


def _problems(args: argparse.Namespace, layout: Layout) -> list[tuple[Problem, bool]]:
    """Each problem to tune, and whether our kernels shall be offered."""
    from rocm_tui.actions.tune import distinct, is_shape, problem_of, typed_problem
    from rocm_tui.errors import UsageError

    words, logs = args.words, args.from_log
    if len(words) > 1 and is_shape(words[1]) and not logs:
        typed = typed_problem(
            words,
            dtype=args.dtype,
            strides=args.strides,
            device="cpu" if args.device == "cpu" else "cuda" if args.device else None,
            precision=args.precision,
        )
        return [(typed, bool(args.templates))]
    if args.dtype or args.strides or args.precision:
        raise UsageError("--dtype, --strides and --precision go with OP SHAPE...")
    if not words and not logs:
        raise UsageError("say what to tune: OP SHAPE... --dtype TYPE, an ID, or --from-log FILE")
    model = common.load(layout, logs or [str(layout.root), *args.sources])
    common.print_problems(model)
    rows = [common.find_row(model, word) for word in words] or distinct(model.rows())
    return [(problem_of(row.tuning), _ours(row, args.templates)) for row in rows]


def _ours(row: Row, wanted: bool | None) -> bool:
    from backend.model.origin import is_own

    return any(is_own(c.hash) for c in row.tuning.choices) if wanted is None else wanted


def _tune(work: Work, problem: Problem, options: TuneOptions) -> Tuning | str:
    """The tuning with its times, or why there is none."""
    from rocm_tui.actions.tune import tune
    from rocm_tui.commands.work import with_log
    from rocm_tui.errors import RocmTuiError
    from rocm_tui.render.jobs import problem_title

    work.line.title = problem_title(problem)
    work.line.show("starting a worker")
    try:
        return tune(work, problem, options)
    except RocmTuiError as error:
        return with_log(error)
    finally:
        work.line.show("")


def _list(problems: list[tuple[Problem, bool]], as_json: bool) -> int:
    from rocm_tui.tune_request import title, words_of

    if as_json:
        say.out_json({"problems": [words_of(problem) for problem, _ in problems]})
    for problem, ours in () if as_json else problems:
        name = f"{problem.id}  {problem_title(problem)}" if problem.key else problem_title(problem)
        say.out(f"{name}  with our kernels" if ours else name)
    return 0 if problems else 1


def _tell(
    layout: Layout, tuned: list[Tuning], failed: list[tuple[Problem, str]], as_json: bool
) -> None:
    """The lines that `ls` has for what was tuned, read back from the cache dir."""
    from rocm_tui.actions.tune import words_of
    from rocm_tui.render.jobs import problem_title
    from rocm_tui.session.as_json import row_json
    from rocm_tui.session.as_text import HEADER, RIGHT, row_cells, table

    model = common.load(layout, [])
    rows = [common.find_row(model, tuning.id) for tuning in tuned]
    if as_json:
        told = [{"problem": words_of(problem), "reason": why} for problem, why in failed]
        say.out_json({"tunings": [row_json(row) for row in rows], "failed": told})
    elif rows:
        say.out(tunings_text(rows))
    for problem, why in failed:
        say.err(f"{problem_title(problem)} was not tuned: {why}")
