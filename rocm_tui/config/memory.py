"""What the program remembers between two runs: theme, borders and filters, and for each set of
sources its order, grouping and strips.

    memory.recall("theme", "auto")            what was remembered, if it is of the default's type
    memory.remember("theme", "rocm-dark")     written soon, off the caller's thread
    memory.add("filter history", "op:mm")     to a list, the newest first, each once
    memory.put("filters", "slow", "gain<1")   into a table; None removes the name
    memory.workspace(paths).remember("sort", "lead")    for these sources alone

Each change is of one name alone and is made in the file as it is then, under a lock: two programs
do not lose each other's. A file that cannot be read or written never stops the program; what could
not be written is written with the next change, or else forgotten at the end.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from os.path import abspath
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
_TRIES = 3
"""How often changes are written in vain before the next change is awaited."""
_WORKSPACES = "workspaces"
_CHANGED = "changed"
MOST_WORKSPACES = 64
"""Sets of sources that are remembered; the one that was changed longest ago goes first."""


class Memory:
    """The file at `path`; read at the first question, and written unless it is `read_only`."""

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self._path = path
        self.read_only = read_only
        self._state: dict[str, Any] | None = None
        self._pending: list[Edit] = []
        self._mutex = threading.Lock()
        self._writer: threading.Thread | None = None
        self.trouble = ""
        """Why the file cannot be read, or some changes were not written."""
        self.unwritten = ""
        """Why some changes were not written into a file that there is. Who has none, and no place
        for one, need not hear that."""

    def recall(self, name: str, default: _Default) -> _Default:
        """Return what was remembered; `default` where nothing of its type was."""
        return self._recall(lambda state: state.get(name), default)

    def _recall(self, find: Callable[[dict[str, Any]], Any], default: _Default) -> _Default:
        with self._mutex:
            value = find(self._read())
        return cast(_Default, value) if _fits(value, default) else default

    def remember(self, name: str, value: bool | int | float | str) -> None:
        """Let this be what `name` is from now on."""
        self._change(lambda state: state.update({name: value}))

    def workspace(self, paths: Iterable[str]) -> Workspace:
        """Return what is remembered for this set of sources, in whatever order."""
        # No `resolve`: a path on a network that does not answer must not stop the screen.
        names = json.dumps(sorted({abspath(path) for path in paths}))  # noqa: PTH100
        return Workspace(self, sha256(names.encode(errors="surrogatepass")).hexdigest()[:16])

    def recall_in(self, workspace: str, name: str, default: _Default) -> _Default:
        """Return what was remembered there; `default` where nothing of its type was."""
        return self._recall(lambda state: _workspaces(state).get(workspace, {}).get(name), default)

    def remember_in(self, workspace: str, name: str, value: bool | int | float | str) -> None:
        """Let this be what `name` is there from now on."""
        now = time.time()

        def edit(state: dict[str, Any]) -> None:
            all_of_them = _workspaces(state)
            mine = {**all_of_them.pop(workspace, {}), name: value, _CHANGED: now}
            others = sorted(all_of_them.items(), key=_changed, reverse=True)
            state[_WORKSPACES] = {workspace: mine, **dict(others[: MOST_WORKSPACES - 1])}

        self._change(edit)

    def add(self, name: str, item: str, most: int = 50) -> None:
        """Put `item` first in the list `name`; of more than `most` the oldest go."""

        def edit(state: dict[str, Any]) -> None:
            old = state.get(name)
            rest: list[str] = cast("list[str]", old) if _fits(old, [""]) else []
            state[name] = [item, *(other for other in rest if other != item)][:most]

        self._change(edit)

    def put(self, name: str, key: str, value: str | None) -> None:
        """Set `key` in the table `name`; None removes it."""

        def edit(state: dict[str, Any]) -> None:
            old = state.get(name)
            table = dict(old) if isinstance(old, dict) else {}
            table.pop(key, None)
            state[name] = table if value is None else {**table, key: value}

        self._change(edit)

    def flush(self) -> None:
        """Wait until all is written; the program calls it at its end. What could not be written is
        tried once more."""
        with self._mutex:
            self._start_writer()
            writer = self._writer
        if writer is not None:
            writer.join(2 * _PATIENCE)

    def _change(self, edit: Edit) -> None:
        with self._mutex:
            edit(self._read())
            if self.read_only:
                return
            self._pending.append(edit)
            self._start_writer()

    def _start_writer(self) -> None:
        """The mutex is held."""
        if self._pending and self._writer is None:
            self._writer = threading.Thread(target=self._write, name="memory", daemon=True)
            self._writer.start()

    def _read(self) -> dict[str, Any]:
        if self._state is None:
            self._state, self.trouble = _read(self._path)
        return self._state

    def _write(self) -> None:
        tries = 0
        while True:
            with self._mutex:
                edits = [*self._pending]
                if not edits or tries == _TRIES:
                    self._writer = None
                    return
            try:
                apply(self._path, edits)
            except (StoreError, OSError) as error:  # another program may hold the lock for long
                self.trouble, tries = str(error), tries + 1
                self.unwritten = self.trouble if self._path.exists() else ""
                continue
            with self._mutex:
                del self._pending[: len(edits)]
            self.trouble, self.unwritten, tries = "", "", 0


@dataclass(frozen=True, slots=True)
class Workspace:
    """The part of a memory that belongs to one set of sources."""

    memory: Memory
    name: str

    def recall(self, name: str, default: _Default) -> _Default:
        """Return what was remembered; `default` where nothing of its type was."""
        return self.memory.recall_in(self.name, name, default)

    def remember(self, name: str, value: bool | int | float | str) -> None:
        """Let this be what `name` is from now on."""
        self.memory.remember_in(self.name, name, value)


def _workspaces(state: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the workspaces of a state, of which a file may hold anything."""
    named = state.get(_WORKSPACES)
    pairs = named.items() if isinstance(named, dict) else ()
    return {name: values for name, values in pairs if isinstance(values, dict)}


def _changed(pair: tuple[str, dict[str, Any]]) -> float:
    when = pair[1].get(_CHANGED)
    return float(when) if isinstance(when, int | float) else 0.0


def apply(path: Path, edits: list[Edit]) -> None:
    """Make these changes in the file as it is now. Raises StoreError and OSError; a file that is
    not ours is left alone."""
    folder = path.parent
    safe.make_folder(folder, folder)
    with safe.locked(folder, path, _PATIENCE, locks=folder):
        safe.check_file(folder, path)
        state = safe.load_json(path, safe.read_bytes(path, _MOST)) if path.exists() else {}
        for edit in edits:
            edit(state)
        text = json.dumps(state, indent=1, sort_keys=True)
        safe.write_atomic(path, f"{text}\n".encode())


def trouble_of(path: Path) -> str:
    """Return why the file cannot be read; empty where it can, or where there is none yet."""
    return _read(path)[1]


def _read(path: Path) -> tuple[dict[str, Any], str]:
    try:
        return safe.load_json(path, safe.read_bytes(path, _MOST)), ""
    except StoreError as error:
        return {}, "" if error.is_absent else f"nothing is remembered: {error}"


def _fits(value: object, default: object) -> bool:
    """Return whether it is of the same kind: a file may hold anything."""
    if isinstance(default, list):
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if isinstance(default, dict):
        return isinstance(value, dict) and all(
            isinstance(text, str) for pair in value.items() for text in pair
        )
    if isinstance(default, float):
        return type(value) in (int, float)
    return type(value) is type(default)
