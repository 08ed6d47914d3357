"""Completion for shells, made from the parser: commands, options, files, and the ids of today."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

import shtab

from backend.disk.layout import Layout
from rocm_tui.actions.graphs import known_graphs
from rocm_tui.actions.pick import load_model
from rocm_tui.actions.pin import list_pins
from rocm_tui.harmless import plain
from rocm_tui.session import stats

_FILES = {"PATH", "FILE", "EXE", "A", "B"}
_FOLDERS = {"DIR"}
_PINNED = {"unpin", "verify", "export"}


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The completion script of a shell; the parser is changed by it."""
    for command, parser_of in _commands(parser).items():
        for action in parser_of._actions:
            kind = _kind(command, action)
            if kind is not None:
                action.complete = kind  # type: ignore[attr-defined]
    for subparsers in _subparsers(parser):
        short = {choice.dest: choice.help or "" for choice in subparsers._choices_actions}
        for command, parser_of in subparsers.choices.items():
            parser_of.description = short.get(command, "")
    return str(shtab.complete(parser, shell=shell))


def _kind(command: str, action: argparse.Action) -> Mapping[str, object] | None:
    name = str(action.metavar or "")
    if name in _FILES:
        return shtab.FILE  # type: ignore[no-any-return]
    if name in _FOLDERS:
        return shtab.DIRECTORY  # type: ignore[no-any-return]
    if name in ("GRAPH", "GID") or (name == "ID" and command == "graphs"):
        return _ids("graphs")
    if name == "ID" or name.endswith("| ID"):
        return _ids("pins" if command in _PINNED else "tunings")
    return None


def _ids(kind: str) -> Mapping[str, object]:
    """Asked for when a person presses Tab; fish shows what each is beside it."""
    words = f"rocm-tui --print-ids {kind} 2>/dev/null"
    return {**shtab.cmd(f"{words} | cut -f1"), "fish": f"({words})"}


def _subparsers(
    parser: argparse.ArgumentParser,
) -> Iterator[argparse._SubParsersAction[argparse.ArgumentParser]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield action


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return {name: each for group in _subparsers(parser) for name, each in group.choices.items()}


def ids(layout: Layout, kind: str) -> Iterator[str]:
    """An id, a tab, and what it is; each once."""
    if kind == "pins":
        known = {pin.id: f"{pin.op} {pin.label}" for pin in list_pins(layout)}
    elif kind == "graphs":
        known = {row.id: "graph" for row in known_graphs(layout, [])}
    else:
        rows = load_model(layout).listed()
        known = {
            row.id: f"{row.tuning.op} {stats.sizes_text(row.tuning)} {stats.dtype_of(row.tuning)}"
            for row in rows
        }
    for name, about in known.items():
        yield f"{plain(name)}\t{plain(about)}"
