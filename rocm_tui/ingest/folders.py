"""Which files of a folder are sources, and which folders must be watched for them.

An Inductor cache dir has thousands of folders; what matters lies in `cache/` and
`rocm_tui/sessions/`. In any other folder its own files matter, not its subfolders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from backend.disk.layout import Layout
from rocm_tui.ingest.records import Format

LOGS = frozenset({".log", ".txt", ".err", ".out", ".stderr", ".stdout"})
DOCUMENTS = frozenset({".json", ".jsonl"})
TABLES = frozenset({".csv"})

_SYSTEM_HASH = re.compile(r"[0-9a-f]{64}\Z")
_OF_LOGS: frozenset[Format] = frozenset({"stderr log", "torch trace", "event log"})
_OF_DOCUMENTS: frozenset[Format] = frozenset({"mm log", "autotune cache", "event log"})
_OF_TABLES: frozenset[Format] = frozenset({"tunableop"})


@dataclass(frozen=True, slots=True)
class Member:
    """A file of a folder. `known` is its format where its place tells it, else ``; `wanted` are
    the formats for which it is worth reading, or empty for all."""

    path: str
    known: Format = ""
    wanted: frozenset[Format] = frozenset()


def known_format(path: str) -> Format:
    """The format that a file must have by its place, whatever it holds; `` for most."""
    folder, name = os.path.split(path)
    if os.path.basename(folder) == "cache" and _SYSTEM_HASH.match(name):  # noqa: PTH119
        return "autotune cache"
    if folder.endswith(os.path.join("rocm_tui", "sessions")) and name.endswith(".jsonl"):  # noqa: PTH118
        return "event log"
    return ""


def is_member(path: str) -> bool:
    """Whether a file of this name can be a source in its folder."""
    return bool(known_format(path)) or _wanted(os.path.basename(path)) is not None  # noqa: PTH119


def members(folder: str) -> list[Member]:
    """The sources that a folder holds now, by name. Raises OSError if it cannot be listed."""
    layout = Layout(Path(folder))
    found = [*_files(folder)]
    for inner in (layout.autotune, layout.sessions):
        try:
            found += [member for member in _files(str(inner)) if member.known]
        except OSError:
            continue  # not there, or not a cache dir
    return sorted(found, key=lambda member: member.path)


def watched_folders(folder: str) -> list[str]:
    """The folders whose changes can bring or change a source of `folder`."""
    layout = Layout(Path(folder))
    return [folder, *map(str, (layout.autotune, layout.home, layout.sessions))]


def _files(folder: str) -> Iterator[Member]:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = os.path.join(folder, entry.name)  # noqa: PTH118 - as the person wrote it
            known = known_format(path)
            wanted = frozenset({known}) if known else _wanted(entry.name)
            if wanted is not None and _may_be_file(entry):
                yield Member(path, known, wanted)


def _may_be_file(entry: os.DirEntry[str]) -> bool:
    """Also what cannot be told: one bad link must not hide the rest, and whoever reads it says."""
    try:
        return entry.is_file()
    except OSError:
        return True


def _wanted(name: str) -> frozenset[Format] | None:
    """The formats to expect under this name; None if it is no source."""
    if name.startswith("."):
        return None
    if _SYSTEM_HASH.match(name):
        return _OF_DOCUMENTS
    suffix = os.path.splitext(name.removesuffix(".gz"))[1].lower()  # noqa: PTH122
    if suffix in LOGS:
        return _OF_LOGS
    if suffix in DOCUMENTS:
        return _OF_DOCUMENTS
    return _OF_TABLES if suffix in TABLES else None
