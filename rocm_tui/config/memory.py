"""What the program remembers between two runs: theme, order, layout, filters.

    memory.recall("sort", "newest")           what was remembered, if it is of the default's type
    memory.remember("sort", "lead")           written soon, off the caller's thread
    memory.add("filter history", "op:mm")     to a list, the newest first, each once
    memory.put("filters", "slow", "gain<1")   into a table; None takes the name out

Each change is of one name alone and is made in the file as it is then, under a lock: two programs
do not lose each other's. A file that cannot be read or written never stops the program; what it
holds is then forgotten at the end.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from backend.disk import safe
from backend.errors import StoreError

_Default = TypeVar("_Default", bool, int, float, str, list[str], dict[str, str])
Edit = Callable[[dict[str, Any]], None]

_MOST = 1 << 20
"""Bytes. A longer file is not ours."""
_PATIENCE = 2.0
"""Seconds to wait for another program's lock."""


class Memory:
    """The file at `path`; read when it is first asked, and written unless it is `read_only`."""

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self._path = path
        self._read_only = read_only
        self._known: dict[str, Any] | None = None
        self._pending: list[Edit] = []
        self._mutex = threading.Lock()
        self._writer: threading.Thread | None = None
        self.trouble = ""
        """Why the file cannot be read, or the last change was not written."""

    def recall(self, name: str, default: _Default) -> _Default:
        """What was remembered; `default` where nothing of its type was."""
        with self._mutex:
            value: Any = self._learn().get(name)
        return cast(_Default, value) if _fits(value, default) else default

    def remember(self, name: str, value: bool | int | float | str) -> None:
        """Let this be what `name` is from now on."""
        self._change(lambda known: known.update({name: value}))

    def add(self, name: str, item: str, most: int = 50) -> None:
        """Put `item` first in the list `name`; of more than `most` the oldest go."""

        def edit(known: dict[str, Any]) -> None:
            old = known.get(name)
            rest: list[str] = cast("list[str]", old) if _fits(old, [""]) else []
            known[name] = [item, *(one for one in rest if one != item)][:most]

        self._change(edit)

    def put(self, name: str, key: str, value: str | None) -> None:
        """Set `key` in the table `name`; None takes it out."""

        def edit(known: dict[str, Any]) -> None:
            old = known.get(name)
            table = dict(old) if isinstance(old, dict) else {}
            table.pop(key, None)
            known[name] = table if value is None else {**table, key: value}

        self._change(edit)

    def flush(self) -> None:
        """Wait until all is written; the program calls it at its end."""
        writer = self._writer
        if writer is not None:
            writer.join(2 * _PATIENCE)

    def _change(self, edit: Edit) -> None:
        with self._mutex:
            edit(self._learn())
            if self._read_only:
                return
            self._pending.append(edit)
            if self._writer is None:
                self._writer = threading.Thread(target=self._write, name="memory", daemon=True)
                self._writer.start()

    def _learn(self) -> dict[str, Any]:
        if self._known is None:
            self._known, self.trouble = _read(self._path)
        return self._known

    def _write(self) -> None:
        while True:
            with self._mutex:
                edits, self._pending = self._pending, []
                if not edits:
                    self._writer = None
                    return
            try:
                apply(self._path, edits)
                self.trouble = ""
            except (StoreError, OSError) as error:
                self.trouble = str(error)


def apply(path: Path, edits: list[Edit]) -> None:
    """Make these changes in the file as it is now. Raises StoreError and OSError; a file that is
    not ours is left alone."""
    folder = path.parent
    safe.make_folder(folder, folder)
    with safe.locked(folder, path, _PATIENCE, locks=folder):
        safe.check_file(folder, path)
        known = safe.load_json(path, safe.read_bytes(path, _MOST)) if path.exists() else {}
        for edit in edits:
            edit(known)
        text = json.dumps(known, indent=1, sort_keys=True)
        safe.write_atomic(path, f"{text}\n".encode())


def trouble_of(path: Path) -> str:
    """Why what is remembered cannot be read; empty where it can, or where there is nothing yet."""
    return _read(path)[1]


def _read(path: Path) -> tuple[dict[str, Any], str]:
    try:
        return safe.load_json(path, safe.read_bytes(path, _MOST)), ""
    except StoreError as error:
        absent = isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError))
        return {}, "" if absent else f"nothing is remembered: {error}"


def _fits(value: object, default: object) -> bool:
    """Whether it is of the same kind: a file may hold anything."""
    if isinstance(default, list):
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    if isinstance(default, dict):
        return isinstance(value, dict) and all(
            isinstance(one, str) for pair in value.items() for one in pair
        )
    if isinstance(default, float):
        return type(value) in (int, float)
    return type(value) is type(default)
