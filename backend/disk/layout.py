"""Where things lie below Inductor's cache dir."""

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
    """Whether a name that comes from a file, a worker or a host may be part of a path: printable,
    not hidden, in no other folder, not too long."""
    fits = name.isprintable() and 0 < len(name.encode()) <= MAX_NAME
    return fits and "/" not in name and name[0] != "."


def cache_dir(env: Mapping[str, str] = os.environ) -> Path:
    """The cache dir that a process with the environment `env` would use.

    As torch/_inductor/runtime/cache_dir_utils.py finds it, but nothing is created:
    `TORCHINDUCTOR_CACHE_DIR`, else `<temporary folder>/torchinductor_<user>`.
    """
    given = env.get("TORCHINDUCTOR_CACHE_DIR")
    if given is not None:
        return Path(os.path.abspath(given))  # noqa: PTH100 - resolve() would follow symlinks
    user = re.sub(r'[\\/:*?"<>|]', "_", _user(env))
    return Path(_temporary_folder(env), f"torchinductor_{user}")


def _user(env: Mapping[str, str]) -> str:
    """`getpass.getuser` for another environment than our own."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        if env.get(name):
            return env[name]
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid_{os.getuid()}"


def _temporary_folder(env: Mapping[str, str]) -> str:
    """`tempfile.gettempdir` for another environment than our own."""
    given = [env[name] for name in ("TMPDIR", "TEMP", "TMP") if env.get(name)]
    for folder in (*given, "/tmp", "/var/tmp", "/usr/tmp"):
        absolute = os.path.abspath(folder)  # noqa: PTH100
        if os.access(absolute, os.W_OK | os.X_OK) and Path(absolute).is_dir():
            return absolute
    return str(Path.cwd())


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders and files below the cache dir `root`."""

    root: Path

    @property
    def autotune(self) -> Path:
        """One file a system: Inductor's persistent autotune cache."""
        return self.root / "cache"

    def cache_file(self, system_hash: str) -> Path:
        """Return the file of a system. Raises UnsafePath where that cannot be its name."""
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
        """Everything of ours."""
        return self.root / "rocm_tui"

    @property
    def pins(self) -> Path:
        return self.home / "pins.json"

    @property
    def done(self) -> Path:
        """What was done from the screen, with the commands that do the same."""
        return self.home / "done.jsonl"

    @property
    def sessions(self) -> Path:
        """Event logs, one a process."""
        return self.home / "sessions"

    @property
    def evicted(self) -> Path:
        """Compiled graphs that a pin moved aside."""
        return self.home / "evicted"

    @property
    def ranks(self) -> Path:
        """What the ranks of a job chose together, a folder a job."""
        return self.home / "ranks"

    @property
    def triton(self) -> Path:
        """Modules of Triton kernels of ours."""
        return self.home / "triton"

    @property
    def graphs(self) -> Path:
        """Captured graphs, `ID.py` each, and the caches that their trials work in."""
        return self.home / "graphs"

    @property
    def trials(self) -> Path:
        """The private cache dir of the workers that try captured graphs."""
        return self.graphs / "cache"
