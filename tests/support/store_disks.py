"""File systems for tests: small real ones, where mounting is permitted, and failing reads; and a
process without descriptors."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def mounted(folder: Path, *options: str) -> Iterator[Path]:
    """A tmpfs of 1 MiB at `folder`; the test is skipped where mounting is not permitted."""
    folder.mkdir(mode=0o700)
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=700", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if done.returncode != 0:
        pytest.skip(f"mounting is not permitted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def make_read_only(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)


def make_writable(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """This process can open no file: EMFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def make_stale(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Let each opening or listing of `path` fail, as NFS does after a server's restart."""

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(where: Any = ".", *rest: Any, **named: Any) -> Any:
            if where in (path, str(path)):
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), str(path))
            return real(where, *rest, **named)

        return call

    monkeypatch.setattr(os, "open", failing(os.open))
    monkeypatch.setattr(os, "scandir", failing(os.scandir))
