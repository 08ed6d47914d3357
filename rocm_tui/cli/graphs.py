"""`rocm-tui graphs [ID]`: the compiled graphs of programs, or one with all that is known of it."""

from __future__ import annotations

from typing import Any

import click

from rocm_tui import say
from rocm_tui.actions.sources import known_graphs
from rocm_tui.actions.trial import text_of
from rocm_tui.cli import common
from rocm_tui.cli.common import CommandArguments, ExitCode
from rocm_tui.errors import UsageError
from rocm_tui.render.graphs import graph_json, graph_text, graphs_text
from rocm_tui.session.graph_rows import find_graph


@click.command()
@click.argument("id", metavar="[ID]", type=common.GRAPH, required=False)
@click.option("--text", is_flag=True, help="Print the captured text of graph ID.")
@common.from_option
@common.cache_dir_option
@common.json_option
def graphs_command(**given: Any) -> int:
    """List the compiled graphs that `rocm-tui run` or a torch.profiler trace (--from) recorded.

    For each graph: its calls, the time of a call, its share of the time in compiled graphs. With
    ID: its tunings and their shares, its kernels where a profiler saw them, its trials. Exit code 1
    if there is no graph.
    """
    args = CommandArguments(**given)
    if args.text and (args.id is None or args.json):
        raise UsageError("--text needs an ID, and is no JSON: graphs ID --text")
    layout = common.layout_of(args)
    rows = known_graphs(layout, args.sources)
    if args.id is not None:
        row = find_graph(rows, args.id)
        if args.text:
            common.print_source(text_of(layout, row.id).data.decode("utf-8", "replace"))
        elif args.json:
            say.out_json(graph_json(row))
        else:
            say.out(graph_text(row))
        return ExitCode.YES
    if args.json:
        say.out_json({"graphs": [graph_json(row) for row in rows]})
    elif rows:
        say.out(graphs_text(rows))
    else:
        say.err("no graph is known: `rocm-tui run -- CMD` records them")
    return ExitCode.of(bool(rows))
