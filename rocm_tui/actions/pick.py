"""What a person points at: what sources tell, and the tuning that is meant."""

from __future__ import annotations

from collections.abc import Sequence

from backend.records import Problem
from backend.store.errors import StoreError
from backend.store.paths import Layout
from backend.store.pins import PinStore
from rocm_tui.collector import no_collector
from rocm_tui.errors import NoSuchTuning
from rocm_tui.ingest.watcher import read_sources
from rocm_tui.session.find import find_row
from rocm_tui.session.model import Model, Row
from rocm_tui.session.troubles import Trouble


def load_model(layout: Layout, paths: Sequence[str] = ()) -> Model:
    """Everything that `paths` (else the cache dir) tell, with the pins of the cache dir."""
    model = Model()
    with no_collector():
        model.apply(read_sources(list(paths) or [str(layout.root)]))
    try:
        model.set_pins(PinStore(layout).status())
    except StoreError as error:
        model.apply([Problem(str(layout.pins), str(error))])
    return model


def pick_row(model: Model, text: str) -> Row:
    """The tuning a person means. Raises NoSuchTuning, which names what could not be read."""
    try:
        return find_row(model.rows(), text)
    except NoSuchTuning as error:
        if not model.problems:
            raise
        first = Trouble(model.problems[0]).line()
        raise NoSuchTuning(f"{error}. Not read: {first}") from error
