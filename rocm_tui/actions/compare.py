"""What is to be compared or reported on: files, folders, exports of pins, sessions by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from backend.disk.layout import Layout
from backend.model.session import Fault
from backend.sharing.share import read_share
from rocm_tui.actions.pick import load_model, require_read
from rocm_tui.compare.comparison import is_export, of_sessions, tunings, whole
from rocm_tui.compare.packing import packed_part, unpacked_part
from rocm_tui.compare.types import Part
from rocm_tui.halves import Aside
from rocm_tui.ingest.packed import unpack
from rocm_tui.session.model import Model
from rocm_tui.session.named import NoSuchSession, meant
from rocm_tui.ssh.address import is_far


class Ahead:
    """A part that is read in another process meanwhile, as a context: of files and folders."""

    def __init__(self, layout: Layout, text: str, also: Sequence[str]) -> None:
        self._aside: Aside | None = None
        if all(not is_far(path) and _lasts(Path(path)) for path in (text, *also)):
            self._aside = Aside.begin(partial(_packed, layout, text, also))

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *_: object) -> None:
        if self._aside is not None:
            self._aside.drop()

    def part(self) -> tuple[Part, Sequence[Fault]] | None:
        """What `read_part` gives of it; None where that is to be asked here, and may raise."""
        aside, self._aside = self._aside, None
        told = aside.told() if aside else None
        return None if told is None else _unpacked(*unpacked_part(told))


def _lasts(path: Path) -> bool:
    """Whether it can be read twice, unlike a pipe."""
    return path.is_file() or path.is_dir()


def _packed(layout: Layout, text: str, also: Sequence[str]) -> bytes:
    return packed_part(*_read_part(layout, "", text, also))


def read_part(
    layout: Layout, name: str, text: str, also: Sequence[str]
) -> tuple[Part, Sequence[Fault]]:
    """What the sources, or the sessions of the cache dir, tell; and what could not be read.

    `name` is what a person calls this part: `A` or `B`. Raises NoSuchSession for a text that
    names neither, NoSuchSource for one that cannot be read, and ShareInvalid.
    """
    return _unpacked(*_read_part(layout, name, text, also))


def _unpacked(part: Part, problems: Sequence[Fault]) -> tuple[Part, Sequence[Fault]]:
    """With all choices made: each of them is compared."""
    unpack(row.tuning for row in part.rows)
    return part, problems


def _read_part(
    layout: Layout, name: str, text: str, also: Sequence[str]
) -> tuple[Part, Sequence[Fault]]:
    if text == "-" or is_far(text) or Path(text).exists():
        model = _model(_home(Path(text), layout), [text, *also])
        require_read(model, [text, *also])
        return whole(" + ".join([text, *also]), model), model.problems
    model = _model(layout, [str(layout.root), *also])
    require_read(model, also)
    try:
        ids = meant(model.sessions.values(), text, str(layout.root))
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
    here = [path for path in paths if path != "-" and not is_far(path)]
    exports = [path for path in here if is_export(Path(path))]
    return exports, [path for path in paths if path not in exports]


def _home(source: Path, layout: Layout) -> Layout:
    """The cache dir whose pins a source is subject to: its own, if it is one."""
    if (source / "cache").is_dir() or (source / "rocm_tui").is_dir():
        return Layout(source.absolute())
    return layout
