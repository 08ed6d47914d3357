"""Our package in a process that may find nothing else of the environment in which we are installed.

A folder of packages on its path would offer it our torch before its own, and ours of everything
that its environment lacks.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).parents[1]
"""The folder of `backend`, the one that runs here."""


def loading(folder: str = repr(str(PACKAGE))) -> str:
    """Statements after which `import backend` gives the package in `folder`, an expression, unless
    another `backend` was imported already. They raise ImportError where there is none."""
    return f"""\
import os, sys
from importlib.util import module_from_spec, spec_from_file_location
if "backend" not in sys.modules:
    spec = spec_from_file_location("backend", os.path.join({folder}, "__init__.py"))
    if not os.path.exists(spec.origin):
        raise ImportError(spec.origin + " is gone")
    sys.modules["backend"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["backend"])
"""


def program(statement: str) -> str:
    """For `python -c`: what runs `statement` with the package in the folder `sys.argv[1]`."""
    return f"{loading('sys.argv[1]')}{statement}\n"
