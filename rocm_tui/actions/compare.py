"""What is to be compared or reported on: files, folders, exports of pins, sessions by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from backend.disk.layout import Layout
from backend.model.session import Fault
from backend.sharing.share import read_share
from rocm_tui.actions.pick import load_model, require_read
from rocm_tui.compare.comparison import is_export, of_sessions, tunings, whole
from rocm_tui.compare.types import Part
from rocm_tui.session.model import Model
from rocm_tui.session.sessions import NoSuchSession, required_sessions


def read_part(
    layout: Layout, name: str, text: str, also: Sequence[str]
) -> tuple[Part, Sequence[Fault]]:
    """What the sources, or the sessions of the cache dir, tell; and what could not be read.

    `name` is what a person calls this part: `A` or `B`. Raises NoSuchSession for a text that
    names neither, NoSuchSource for one that cannot be read, and ShareInvalid.
    """
    if text == "-" or Path(text).exists():
        model = _model(_home(Path(text), layout), [text, *also])
        require_read(model, [text, *also])
        return whole(" + ".join([text, *also]), model), model.problems
    model = _model(layout, [str(layout.root), *also])
    require_read(model, also)
    try:
        ids = required_sessions(model.sessions.values(), text, str(layout.root))
    except NoSuchSession as error:
        raise NoSuchSession(f"{name}: {error}") from None
    return of_sessions(text, ids, model), model.problems


def _model(layout: Layout, paths: Sequence[str]) -> Model:
    """What the paths tell. Exports of pins are no source to be watched, so they are read here.

    Raises ShareInvalid for an export that is damaged.
    """
    exports, others = _told_apart(paths)
    model = load_model(layout, others) if others else Model()
    for path in exports:
        model.apply(tunings(read_share(Path(path)), path))
    return model


def _told_apart(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """The exports of pins among them, and the others."""
    here = [path for path in paths if path != "-"]
    exports = [path for path in here if is_export(Path(path))]
    return exports, [path for path in paths if path not in exports]


def _home(source: Path, layout: Layout) -> Layout:
    """The cache dir whose pins a source is subject to: its own, if it is one."""
    if (source / "cache").is_dir() or (source / "rocm_tui").is_dir():
        return Layout(source.absolute())
    return layout
