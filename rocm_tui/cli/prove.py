"""`rocm-tui prove [GRAPH]`: are the pins worth it? Stock processes with them and without."""

from __future__ import annotations

import argparse

from rocm_tui import say
from rocm_tui.actions.improve import pick_graph
from rocm_tui.actions.pick import load_model
from rocm_tui.actions.prove import PAIRS, Proving, annotate
from rocm_tui.cli import common
from rocm_tui.cli.common import ExitCode
from rocm_tui.cli.consent import consent
from rocm_tui.cli.work import Work, ended_by_signals, with_log
from rocm_tui.errors import UsageError
from rocm_tui.jobs.limits import JobError, seconds_given
from rocm_tui.render.prove import figure, proof_json, proof_text, sentences
from rocm_tui.session.graph_rows import graph_rows


def add_prove(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Compile a captured graph in new processes of stock PyTorch, in turn with the pins of the "
        "cache dir and without any, and compare whole passes. The figure goes into the notes of "
        "the graph's pins. Exit code 0 if the graph is faster with them."
    )
    parser.add_argument(
        "graph",
        nargs="?",
        metavar="GRAPH",
        help="a graph's id, or its first digits (default: where the program spends most time)",
    )
    parser.add_argument(
        "--pairs",
        type=int,
        default=PAIRS,
        metavar="N",
        help=f"so many processes with the pins and as many without (default: {PAIRS}; least 3)",
    )
    parser.add_argument(
        "--budget",
        type=float,
        metavar="SECONDS",
        help="time passes no longer than that in each process (default: 10, or as set)",
    )
    parser.add_argument(
        "--yes", action="store_true", help="run the graph's text without asking, and remember that"
    )
    common.add_arguments(parser, "--device", "--from", "--python", "--cache-dir", "--json")


def do_prove(args: argparse.Namespace) -> int:
    budget = seconds_given(args.budget, "--budget")
    if args.pairs < 3:
        raise UsageError("--pairs is a number, 3 or more: fewer tell nothing of their differences")
    layout = common.layout_of(args)
    graph = pick_graph(graph_rows(load_model(layout, also=args.sources), layout), args.graph)
    work = Work(layout, args.python, args.device)

    def tell(number: int, total: int, pinned: bool) -> None:
        which = "with the pins" if pinned else "without"
        work.line.part(number - 1, total)
        work.line.title = f"graph {graph.id}: process {number} of {total}, {which}"
        work.line.show("starting a worker")

    proving = Proving(work, layout, graph, pairs=args.pairs, budget=budget, tell=tell)
    consent(layout, graph.graph, args.yes)
    try:
        with ended_by_signals():
            proof = proving.go()
    except JobError as error:
        raise JobError(with_log(error)) from error
    finally:
        work.line.show("")
    annotate(layout, proof, figure(proof))
    if args.json:
        say.out_json(proof_json(proof))
    else:
        say.out(proof_text(proof))
        say.out()
        for sentence in sentences(proof):
            say.out(f"{sentence[0].upper()}{sentence[1:]}.")
    return ExitCode.of(proof.verdict == "faster" and not proof.contradicted)
