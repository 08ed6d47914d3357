"""Our package in a child process whose environment may lack ours.

Adding a folder of packages to its path would put our torch before its own, and would add our
versions of everything that its environment lacks.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from textwrap import indent

PACKAGE = Path(__file__).parents[1]
"""The folder of the `backend` package that runs here."""


def loading(folder: str = repr(str(PACKAGE))) -> str:
    """Return statements after which `import backend` loads the package in `folder`, an expression,
    unless another `backend` was imported already. They raise ImportError if there is none."""
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


def importing(module: str, function: str, name: str) -> str:
    """Return Python that imports a function of `module` as `name`, for graphs that anyone runs."""
    statement = f"from {module} import {function} as {name}"
    return f"""\
try:
    {statement}
except ImportError:
    try:
{indent(loading(), " " * 8)}        {statement}
    except ImportError as error:
        raise ImportError(
            "this graph calls kernels of rocm-tui, whose package `backend` is not found here: "
            "install rocm-tui, or compile again without its templates"
        ) from error"""


_NOT_HERE = "import sys\nif sys.path[:1] == ['']: del sys.path[0]\n"
"""Python would look for modules in the current folder first, which may contain torch's sources."""


def command(statement: str, *arguments: str) -> list[str]:
    """Return the command of our own Python that runs `statement`, which may import `backend`;
    `arguments` begin with `sys.argv[2]`."""
    program = f"{_NOT_HERE}{loading('sys.argv[1]')}{statement}\n"
    return [sys.executable, "-W", "ignore", "-c", program, str(PACKAGE), *arguments]


def child_environment() -> dict[str, str]:
    """Return our environment without variables that turn on hooks and logs: the child tunes
    nothing. Packages are found where this process finds them."""
    theirs = ("ROCM_TUI", "TORCH_LOGS", "TORCH_TRACE")
    env = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    env["PYTHONPATH"] = os.pathsep.join(str(Path(path).absolute()) for path in sys.path)
    return env
