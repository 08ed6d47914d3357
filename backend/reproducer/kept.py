"""The source of a Triton choice, among the modules that tuning left below the cache dir.

A module is that of the choice if both give the same hash; nothing else is believed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from backend.model.origin import choice_hash, kernel_hash
from backend.reproducer.folder import ReproducerError
from backend.store.autotune_cache import read_bytes
from backend.store.errors import CacheUnreadable
from backend.templates.triton.heuristics import ARCHES
from backend.templates.triton.module_file import ENTRY, INTERPRETER

MAX_BYTES = 4 << 20
"""A longer module is none of ours, nor is a pipe."""

PREFIX = "rocm_triton-"
"""What the hash of a choice of our Triton template begins with."""


def kept_source(folder: Path, description: str, hash: str) -> str:
    """The module of the choice `hash` in `folder`. Raises ReproducerError."""
    for source in _sources(folder):
        for target in (INTERPRETER, *ARCHES):
            kernel = kernel_hash(source, ENTRY, target)
            if choice_hash("triton", kernel, description) == hash:
                return source
    raise ReproducerError(
        f"the module of {hash[:80]} is not in {folder}: tune again with `--templates` to have it"
    )


def _sources(folder: Path) -> Iterator[str]:
    for path in sorted(folder.glob("*.py")):
        try:
            yield read_bytes(path, MAX_BYTES).decode()
        except (CacheUnreadable, UnicodeDecodeError):
            continue  # it cannot have the hash of a choice
