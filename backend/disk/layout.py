"""The paths in Inductor's cache dir."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from backend.errors import UnsafePath, brief

MAX_NAME = 200
"""Bytes of a name: a file is named after it, and another with 20 more."""


def is_file_name(name: str) -> bool:
    """Return whether a name from a file, a worker or a host may be part of a path: printable, not
    hidden, without folders, not too long."""
    fits = name.isprintable() and 0 < len(name.encode()) <= MAX_NAME
    return fits and "/" not in name and name[0] != "."


def cache_dir(env: Mapping[str, str] = os.environ) -> Path:
    """Return the cache dir that a process with the environment `env` would use.

    Follows torch/_inductor/runtime/cache_dir_utils.py without creating anything:
    `TORCHINDUCTOR_CACHE_DIR`, else `<temporary folder>/torchinductor_<user>`.
    """
    given = env.get("TORCHINDUCTOR_CACHE_DIR")
    if given is not None:
        return Path(os.path.abspath(given))  # noqa: PTH100 - resolve() would follow symlinks
    user = re.sub(r'[\\/:*?"<>|]', "_", _user(env))
    return Path(_temporary_folder(env), f"torchinductor_{user}")


def _user(env: Mapping[str, str]) -> str:
    """Do what `getpass.getuser` does, for another environment than our own."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        if env.get(name):
            return env[name]
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid_{os.getuid()}"


def _temporary_folder(env: Mapping[str, str]) -> str:
    """Do what `tempfile.gettempdir` does, for another environment than our own."""
    given = [env[name] for name in ("TMPDIR", "TEMP", "TMP") if env.get(name)]
    for folder in (*given, "/tmp", "/var/tmp", "/usr/tmp"):
        absolute = os.path.abspath(folder)  # noqa: PTH100
        if os.access(absolute, os.W_OK | os.X_OK) and Path(absolute).is_dir():
            return absolute
    return str(Path.cwd())


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders and files in the cache dir `root`."""

    root: Path

    @property
    def autotune(self) -> Path:
        """Inductor's persistent autotune cache, one file per system."""
        return self.root / "cache"

    def cache_file(self, system_hash: str) -> Path:
        """Return the file of a system. Raises UnsafePath if the hash cannot be a file name."""
        if not is_file_name(system_hash):
            raise UnsafePath(f"no cache file is called {brief(repr(system_hash), 80)}")
        return self.autotune / system_hash

    @property
    def fxgraph(self) -> Path:
        return self.root / "fxgraph"

    @property
    def aotautograd(self) -> Path:
        return self.root / "aotautograd"

    @property
    def home(self) -> Path:
        """The folder of all our files."""
        return self.root / "rocm_tui"

    @property
    def pins(self) -> Path:
        return self.home / "pins.json"

    @property
    def done(self) -> Path:
        """The log of actions done from the screen, with their equivalent commands."""
        return self.home / "done.jsonl"

    @property
    def sessions(self) -> Path:
        """Event logs, one per process."""
        return self.home / "sessions"

    @property
    def evicted(self) -> Path:
        """Compiled graphs that a pin moved aside."""
        return self.home / "evicted"

    @property
    def ranks(self) -> Path:
        """Choices agreed by the ranks of a job, one folder per job."""
        return self.home / "ranks"

    @property
    def triton(self) -> Path:
        """Modules of our Triton kernels."""
        return self.home / "triton"

    @property
    def graphs(self) -> Path:
        """Captured graphs, each `ID.py`, and the caches of their trials."""
        return self.home / "graphs"

    @property
    def trials(self) -> Path:
        """The private cache dir of workers that try captured graphs."""
        return self.graphs / "cache"
