"""What a person points at: what sources tell, and the tuning that is meant."""

from __future__ import annotations

from collections.abc import Sequence

from backend.disk.layout import Layout
from backend.errors import StoreError
from backend.model.session import Fault
from backend.pins.store import PinStore
from rocm_tui.errors import NoSuchSource, NoSuchTuning
from rocm_tui.ingest.follow.reading import read_sources, with_tunings
from rocm_tui.ingest.records import Unread
from rocm_tui.session.attachments import with_torch
from rocm_tui.session.find import find_row
from rocm_tui.session.graph_rows import tell_graphs
from rocm_tui.session.model import Model, Row


def load_model(
    layout: Layout,
    paths: Sequence[str] = (),
    also: Sequence[str] = (),
) -> Model:
    """Everything that `paths` (else the cache dir), and `also` others, tell; with the pins of the
    cache dir. Traces of a profiler tell of no tuning, so the cache dir is read with them.

    Raises NoSuchSource for one of `also` that is not there or cannot be read.
    """
    model = Model()
    model.apply(read_sources([*with_tunings(paths, layout.root), *also]))
    model.apply(tell_graphs(model, layout))
    require_read(model, also)
    try:
        model.set_pins(with_torch(PinStore(layout).status(), model.sessions))
    except StoreError as error:
        model.apply([Fault(str(layout.pins), str(error))])
    return model


def unread(model: Model, named: Sequence[str]) -> list[Unread]:
    """Those of the sources that a person named that are not there or cannot be read."""
    lost = [problem for problem in model.problems if isinstance(problem, Unread)]
    return [problem for problem in lost if problem.source in named]


def require_read(model: Model, named: Sequence[str]) -> None:
    """Raises NoSuchSource for the first of them."""
    for problem in unread(model, named):
        raise NoSuchSource(_line(problem))


def pick_tuning(layout: Layout, also: Sequence[str], text: str) -> tuple[Model, Row]:
    """The tuning of the cache dir, or of `also` other sources, that a person means, and all that
    is known. Raises NoSuchTuning, and NoSuchSource."""
    model = load_model(layout, also=also)
    return model, pick_row(model, text)


def pick_row(model: Model, text: str) -> Row:
    """The tuning a person means. Raises NoSuchTuning, which names what could not be read."""
    try:
        return find_row(model.listed(), text)
    except NoSuchTuning as error:
        if not model.problems:
            raise
        last = model.problems[-1].source  # what was named beside the cache dir comes last
        first = next(problem for problem in model.problems if problem.source == last)
        raise NoSuchTuning(f"{error}. Not read: {_line(first)}") from error


def _line(problem: Fault) -> str:
    """Where and what."""
    where = problem.source if problem.line is None else f"{problem.source}:{problem.line}"
    return problem.what if where in problem.what else f"{where}: {problem.what}"
