"""The shell commands for the actions of the screen, and the log of completed actions."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.disk import safe
from backend.disk.layout import Layout, cache_dir
from backend.model.choice import Choice
from backend.model.tuning import LATEST, Pin, Tuning
from backend.pins.file import default_who
from backend.wire.codec import WireError, read, to_json
from rocm_tui.actions.tune import offers_ours
from rocm_tui.ingest.records import STDIN
from rocm_tui.jobs.tune import TuneOptions
from rocm_tui.session.model import Row

_DIGITS = 12
"""Digits of a choice's hash that are typed, where no other choice's begins so."""


@dataclass(frozen=True, slots=True)
class ShellCommands:
    """The commands of the screen's actions.

    Each also names the cache dir if it is not the default, the other sources, and the Python of
    workers.
    """

    layout: Layout
    paths: Sequence[str] = ()
    python: str | None = None

    def pin(self, row: Row, choice: Choice, note: str = "") -> str:
        noted = ["--note", note] if note else []
        return self.line("pin", row.id, *_named(row.tuning, [choice]), *noted, *self._from(row))

    def unpin(self, pin: Pin) -> str:
        return self.line("unpin", pin.id)

    def undo(self) -> str:
        return self.line("pin", "--undo")

    def reapply(self) -> str:
        return self.line("pin", "--reconcile")

    def verify(self, pin: Pin) -> str:
        return self._work("verify", pin.id)

    def measure(self, row: Row, choices: Sequence[Choice]) -> str:
        return self._work("measure", row.id, *_named(row.tuning, choices), *self._from(row))

    def measure_suspects(self) -> str:
        return self._work("measure", "--suspects", *self._outside())

    def tune(self, row: Row, options: TuneOptions, device: str | None) -> str:
        words = ["--backends", ",".join(options.backends)] if options.backends else []
        words += ["--search-space", options.search_space] if options.search_space else []
        if options.templates != offers_ours(row.tuning):
            words.append("--templates" if options.templates else "--no-templates")
        words += ["--budget", f"{options.budget:g}"] if options.budget is not None else []
        words += ["--device", device] if device else []
        return self._work("tune", row.id, *words, *self._from(row))

    def tune_list(
        self, untuned: str, results: str, budget: float | None, device: str | None
    ) -> str:
        """Tune a list by PyTorch's TunableOp."""
        words = ["--budget", f"{budget:g}"] if budget is not None else []
        words += ["--device", device] if device else []
        return self._work("tune", untuned, "--tunableop", "-o", results, *words)

    def trial(self, row: Row, choices: Sequence[Choice], graph: str) -> str:
        named = _named(row.tuning, choices)
        return self._work("trial", row.id, *named, "--graph", graph, *self._from(row))

    def improve(self, graph: str) -> str:
        return self._work("improve", graph)

    def prove(self, graph: str) -> str:
        return self._work("prove", graph)

    def _work(self, *words: str) -> str:
        """Return a command that starts a worker."""
        return self.line(*words, *(["--python", self.python] if self.python else []))

    def line(self, *words: str) -> str:
        """Return a command of rocm-tui for this cache dir."""
        default = {k: v for k, v in os.environ.items() if k != "TORCHINDUCTOR_CACHE_DIR"}
        root = self.layout.root
        where = [] if root == cache_dir(default) else ["--cache-dir", str(root)]
        return shlex.join(["rocm-tui", *words, *where])

    def _from(self, row: Row) -> list[str]:
        """Return the sources outside the cache dir if the tuning is in one of them."""
        root = self.layout.root
        inside = all(Path(source).is_relative_to(root) for source in row.tuning.sources)
        return [] if inside else self._outside()

    def _outside(self) -> list[str]:
        """The sources that are watched besides the cache dir."""
        root = self.layout.root
        paths = [Path(p).absolute() for p in self.paths if p != STDIN]
        return [w for path in paths if not path.is_relative_to(root) for w in ("--from", str(path))]


def _named(tuning: Tuning, choices: Sequence[Choice]) -> list[str]:
    """The hash of each choice, short where that is clear, as `pin` and `measure` take it."""
    return [_short(tuning, choice) for choice in choices]


def _short(tuning: Tuning, choice: Choice) -> str:
    hash = choice.typed
    name, dash, digits = hash.rpartition("-")
    short = name + dash + digits[:_DIGITS]
    meant = [other for other in tuning.choices if (other.hash or "").startswith(short)]
    taken = any(short in (other.name, other.hash) for other in tuning.choices)
    return hash if taken or len(meant) != 1 else short


KEPT = 1000
"""The most lines that the file has."""
_MOST_BYTES = 4 << 20
_LONGEST = 500
"""Characters of an outcome that are kept."""


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """An action that was done: its `command` in a shell, its `outcome`, and whether it succeeded.

    `when` is Unix time, `who` is `user@host`.
    """

    when: float
    who: str
    command: str
    outcome: str
    ok: bool = True


def record_command(layout: Layout, command: str, outcome: str, ok: bool) -> None:
    """Add to the file what was done just now. Raises StoreErrors."""
    path = layout.done
    done = CommandRecord(time.time(), default_who(), command, outcome[:_LONGEST], ok)
    safe.make_folder(layout.root, path.parent)
    safe.check_file(layout.root, path)
    with safe.locked(layout.root, path):
        records = (*read_commands(layout), done)[-KEPT:]
        lines = [json.dumps(to_json(record)) for record in records]
        safe.write_atomic(path, "".join(f"{line}\n" for line in lines).encode())


def read_commands(layout: Layout) -> tuple[CommandRecord, ...]:
    """Return the actions that were done, oldest first. Raises CacheUnreadable."""
    path = layout.done
    if not safe.exists(path):
        return ()
    records = []
    for line in safe.read_bytes(path, _MOST_BYTES).splitlines():
        with contextlib.suppress(ValueError, WireError, RecursionError):
            record = read(CommandRecord, json.loads(line))
            if abs(record.when) <= LATEST:
                records.append(record)
    return tuple(records)
