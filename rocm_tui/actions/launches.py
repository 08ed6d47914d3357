"""What a person's own program launched of the kernels that Triton or Inductor tuned: the proof of
their pins.

Only where such a pin is to be verified, Python finds our hooks in the program, which write down
what is launched first for each key, and do nothing else.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from backend.disk.safe import read_bytes
from backend.errors import CacheUnreadable
from backend.inductor.hooks.kernels import FOLDER
from backend.model.inductor_kernel import is_inductors, is_kernel
from backend.model.kernel import TRITON, alike, inputs_of
from backend.model.pin import Pin
from rocm_tui import environment as hook_env
from rocm_tui.errors import RocmTuiError
from rocm_tui.ingest.formats.reader import json_object

_MOST = 64 << 20
"""Bytes of one process."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The first launch of a kernel with one key: the hash of the config, our inputs key, and
    whether the config was read from a file, so that none was timed."""

    op: str
    inputs: str
    config: str
    read: bool

    def is_of(self, pin: Pin) -> bool:
        """Whether it is the very tuning that is pinned."""
        return (self.op, self.inputs) == (pin.op, pin.inputs)

    def is_like(self, pin: Pin) -> bool:
        """Whether kernel and key are those of the pin, whatever list of configs was tried."""
        return pin.op == self.op == TRITON and alike(self.inputs) == alike(pin.inputs)


class LaunchFolder:
    """Where the program writes; use it in a `with` statement, in the end nothing is left."""

    def __init__(self, pins: Sequence[Pin]) -> None:
        """Raises RocmTuiError if the folder cannot be made."""
        self._path: Path | None = None
        if any(is_kernel(pin.op) for pin in pins):
            try:
                self._path = Path(tempfile.mkdtemp(prefix="rocm-tui-launches-"))
            except OSError as error:
                why = error.strerror
                raise RocmTuiError(f"{tempfile.gettempdir()} cannot be written: {why}") from error

    def __enter__(self) -> LaunchFolder:
        return self

    def __exit__(self, *error: object) -> None:
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)

    def env(self, env: Mapping[str, str]) -> dict[str, str]:
        """`env` for the program."""
        if self._path is None:
            return dict(env)
        return {**hook_env.hooked(env, ""), FOLDER: str(self._path)}

    def launches(self) -> list[Launch]:
        """What was launched, each once."""
        return list(dict.fromkeys(self._lines()))

    def _lines(self) -> Iterator[Launch]:
        for path in sorted(self._path.glob("*.jsonl")) if self._path else ():
            with suppress(CacheUnreadable):
                for line in read_bytes(path, _MOST).splitlines():
                    launch = _launch(line)
                    if launch is not None:
                        yield launch


def _launch(line: bytes) -> Launch | None:
    """What a line tells; None if a program that was killed left half of it."""
    told = json_object(line)
    if told is None:
        return None
    op, inputs = told.get("op"), told.get("inputs")
    if isinstance(op, str) and isinstance(inputs, str) and is_inductors(op):
        return Launch(op, inputs, str(told.get("config")), told.get("read") is True)
    kernel, key, config = told.get("kernel"), told.get("key"), told.get("config")
    if not (isinstance(kernel, str) and isinstance(key, list) and isinstance(config, str)):
        return None
    # As in the name of its file, which is cut.
    inputs = inputs_of(kernel[:150], key, str(told.get("digest") or ""))
    return Launch(TRITON, inputs, config, told.get("read") is True)
