"""What a person points at by path or by the name of a session."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from backend.disk.layout import Layout
from rocm_tui.actions.pick import load_model
from rocm_tui.session.model import Model, Row
from rocm_tui.session.sessions import NoSuchSession, find_sessions, hint


def load_named(layout: Layout, texts: Sequence[str]) -> tuple[Model, list[Row], list[str]]:
    """What the texts tell, each a path or a session of the cache dir; its rows; and the paths that
    were read. No text stands for the cache dir.

    Raises NoSuchSession for one that begins several sessions, or is no path and nearly a session.
    """
    paths = [text for text in texts if text == "-" or Path(text).exists()]
    others = [text for text in texts if text not in paths]
    if not others:
        model = load_model(layout, paths)
        return model, model.listed(), paths
    root = str(layout.root)
    model = load_model(layout, [root, *paths])
    ids: set[str] = set()
    for text in others:
        found = find_sessions(model.sessions.values(), text)
        if found:
            ids.update(found)
        elif near := hint(model.sessions.values(), text):
            raise NoSuchSession(f"{text!r} is no file, and no session of {root} begins so{near}")
        else:
            paths.append(text)  # whoever reads it says that it is not there
    if not ids:
        model = load_model(layout, paths)
        return model, model.listed(), paths
    rows = [row for row in model.listed() if ids.intersection(row.asked) or _within(row, paths)]
    return model, rows, [*paths, root]


def _within(row: Row, paths: Sequence[str]) -> bool:
    return any(
        source == path or source.startswith(f"{path.rstrip('/')}/")
        for device in row.devices or (row,)
        for source in device.tuning.sources
        for path in paths
    )
