"""What a command asks before it runs a graph's text for the first time, or pins."""

from __future__ import annotations

import sys

from backend.counted import counted
from backend.disk.layout import Layout
from backend.model.graph import Graph
from rocm_tui import say
from rocm_tui.actions.trial_graph import GraphText, NotTried, accept, is_accepted, text_of
from rocm_tui.harmless import plain
from rocm_tui.render.trials import graph_title


def consent(layout: Layout, graph: Graph, yes: bool) -> GraphText:
    """The text that a person agreed to run. Raises NotTried."""
    text = text_of(layout, graph.id)
    if is_accepted(layout, text):
        return text
    for line in about(graph, text):
        say.err(line)
    if not yes:
        if not sys.stdin.isatty():
            raise NotTried(f"look at {text.path}, then run it with --yes")
        if not asked("run it? [y/N] "):
            raise NotTried("not run")
    accept(layout, text)
    return text


def about(graph: Graph, text: GraphText) -> list[str]:
    """What a person should know of a graph's text before it runs."""
    size = [counted(graph.nodes, "op")] if graph.nodes else []
    facts = ", ".join([graph_title(graph), *size, f"{counted(len(text.lines), 'line')} of text"])
    return [f"{facts}, never run before:", plain(str(text.path))]


def asked(question: str) -> bool:
    say.ask(question)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
