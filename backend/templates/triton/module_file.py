"""A choice's module as a file, which Triton needs to read the source from, and whether it can."""

from __future__ import annotations

import importlib
import importlib.util
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from backend.templates.triton.errors import TritonCompileError, TritonMissingError

INTERPRET = "TRITON_INTERPRET"
"""Triton's own variable: kernels are interpreted, on tensors of the CPU."""


def interpreter_on(env: Mapping[str, str] = os.environ) -> bool:
    """As `triton.knobs` reads the variable."""
    return env.get(INTERPRET, "").lower() in ("1", "true", "on", "yes", "y")


def write_source(name: str, source: str, folder: Path) -> Path:
    """`source` as `<name>.py` in `folder`; written at once or not at all."""
    path = folder / f"{name}.py"
    if path.exists() and path.read_text() == source:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(dir=folder, suffix=".tmp")
    with os.fdopen(handle, "w") as file:
        file.write(source)
    Path(unfinished).replace(path)
    return path


def load_module(path: Path) -> ModuleType:
    """Import a choice's module; Triton reads its source from the file.

    Raises TritonMissingError where Triton cannot be imported.
    """
    triton("triton")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise TritonCompileError(f"{path} is no Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def triton(name: str) -> Any:
    """A module of Triton's by its full name. Raises TritonMissingError."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise TritonMissingError(
            f"Triton cannot be imported ({error}): pip install 'rocm-tui[triton]'"
        ) from error
