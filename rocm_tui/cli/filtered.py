"""`--filter`: the tunings that a command is about, as in `/` of Watch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from backend.model.session import Session
from rocm_tui.cli.common import CommandArguments
from rocm_tui.config.memory import Memory
from rocm_tui.config.places import state_path
from rocm_tui.session.model import Row
from rocm_tui.session.query.fields import Facts, Known
from rocm_tui.session.query.grammar import EVERYTHING, Query, parse
from rocm_tui.session.query.match import predicate

filter_option = click.option(
    "--filter",
    metavar="FILTER",
    help="Only tunings that match, as in `/` of watch: 'op:mm gain>1.2 !pinned' or '@name'.",
)


def query_of(args: CommandArguments) -> Query:
    """Raises QueryError: ask before anything is read. The saved filters are the screen's."""
    if not args.filter:
        return EVERYTHING
    saved: dict[str, str] = Memory(state_path()).recall("filters", {})
    return parse(args.filter, saved)


def passing(rows: Sequence[Row], query: Query, sessions: Mapping[str, Session]) -> list[Row]:
    return list(filter(predicate(query, Facts(Known(sessions))), rows))
