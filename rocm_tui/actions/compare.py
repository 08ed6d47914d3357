"""What is to be compared or reported on: files, folders, exports of pins, sessions by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from backend.disk.layout import Layout
from backend.model.session import Fault
from backend.sharing.share import read_share
from rocm_tui.actions.pick import load_model
from rocm_tui.compare.comparison import is_export, of_sessions, tunings, whole
from rocm_tui.compare.types import Part
from rocm_tui.errors import NoSuchSource
from rocm_tui.session.find import find_sessions
from rocm_tui.session.model import Model


def read_part(
    layout: Layout, name: str, text: str, also: Sequence[str]
) -> tuple[Part, Sequence[Fault]]:
    """What the sources, or the sessions of the cache dir, tell; and what could not be read.

    `name` is what a person calls this part: `A` or `B`. Raises NoSuchSource for a text that names
    neither, and ShareInvalid.
    """
    if text == "-" or Path(text).exists():
        model = _model(_home(Path(text), layout), [text, *also])
        return whole(" + ".join([text, *also]), model), model.problems
    model = _model(layout, [str(layout.root), *also])
    ids = find_sessions(model.sessions.values(), text)
    if not ids:
        raise NoSuchSource(
            f"{name}: {text!r} is no file, and no session of {layout.root} begins so: give the "
            "first letters of its id, or the name of its log there (HOST-PID-...)"
        )
    return of_sessions(text, ids, model), model.problems


def _model(layout: Layout, paths: Sequence[str]) -> Model:
    """What the paths tell. Exports of pins are no source to be watched, so they are read here.

    Raises ShareInvalid for an export that is damaged.
    """
    exports = [path for path in paths if path != "-" and is_export(Path(path))]
    others = [path for path in paths if path not in exports]
    model = load_model(layout, others) if others else Model()
    for path in exports:
        model.apply(tunings(read_share(Path(path)), path))
    return model


def _home(source: Path, layout: Layout) -> Layout:
    """The cache dir whose pins a source is subject to: its own, if it is one."""
    if (source / "cache").is_dir() or (source / "rocm_tui").is_dir():
        return Layout(source.absolute())
    return layout
