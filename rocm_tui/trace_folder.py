"""A private folder for what PyTorch's own `TORCH_TRACE` says of a program, while it runs.

The variable changes nothing that is compiled and nothing that the program prints. Each process
writes a file of its own. What a person traces anyway stays theirs: our folder is then one inside
theirs, and its files move up at the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from rocm_tui.errors import RocmTuiError

MOST = 512 << 20
"""Bytes on disk that the files of a program may take, where nobody asked for them but us."""

_VARIABLES = ("TORCH_DTRACE", "TORCH_TRACE")
"""The first that is set is the one that PyTorch uses."""


class TraceFolder:
    """Use it in a `with` statement: in the end nothing of ours is left. `full` tells that the
    limit was reached, so that not all was kept."""

    def __init__(self, env: Mapping[str, str], most: int = MOST) -> None:
        """Raises RocmTuiError if the folder cannot be made."""
        given = next((name for name in _VARIABLES if env.get(name)), None)
        self._theirs = None if given is None else Path(os.path.abspath(env[given]))  # noqa: PTH100
        try:
            if self._theirs is not None:
                self._theirs.mkdir(parents=True, exist_ok=True)
            self.path = Path(tempfile.mkdtemp(prefix="rocm-tui-trace-", dir=self._theirs))
        except OSError as error:
            where = self._theirs or tempfile.gettempdir()
            raise RocmTuiError(f"no trace can be written to {where}: {error.strerror}") from error
        self.env = {given or "TORCH_TRACE": str(self.path)}
        self._most = most
        self._kept: dict[str, int] = {}
        self.full = False

    def __enter__(self) -> TraceFolder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._theirs is not None:
            for path, _ in self.files():
                with contextlib.suppress(OSError):
                    path.rename(self._theirs / path.name)
            with contextlib.suppress(OSError):
                self.path.rmdir()
        else:
            shutil.rmtree(self.path, ignore_errors=True)

    def files(self) -> list[tuple[Path, int | None]]:
        """One a process, and how many of its first bytes are all there (None: all)."""
        found = []
        with contextlib.suppress(OSError):
            for path in sorted(self.path.iterdir()):
                if path.is_file() and not path.is_symlink():
                    found.append((path, self._kept.get(path.name, 0) if self.full else None))
        return found

    def look(self) -> None:
        """Keep the files within the limit: what is written beyond it is given back to the disk.

        The writer notices nothing: it goes on at its own place in the file.
        """
        if self._theirs is not None:
            return
        sizes: dict[str, int] = {}
        used = 0
        for path, _ in self.files():
            with contextlib.suppress(OSError):
                status = path.stat()
                sizes[path.name] = status.st_size
                used += status.st_blocks * 512
        if not self.full and used > self._most:
            self.full, self._kept = True, sizes
        if self.full and used > self._most:
            for name in sizes:
                with contextlib.suppress(OSError):
                    os.truncate(self.path / name, self._kept.get(name, 0))
