"""Child processes with our package, which may find nothing else of the environment in which we are
installed; and `main` of the one that benchmarks, the other end of `benchmark/process.py`.

A folder of packages on its path would offer it our torch before its own, and ours of everything
that its environment lacks.

What goes over the pipe of a benchmark is pickled. Both ends are one program's own processes, and
nobody else holds the pipe.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from textwrap import indent

from backend.processes.supervisor import apart

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


def importing(module: str, function: str, name: str) -> str:
    """Python that imports a function of `module` as `name`, in a graph that anyone may run."""
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
"""Python looks for modules where the user stands first: among sources of torch, maybe."""


def command(statement: str, *arguments: str) -> list[str]:
    """A Python of our own kind that runs `statement`, which may import `backend`; `arguments` begin
    with `sys.argv[2]`."""
    program = f"{_NOT_HERE}{loading('sys.argv[1]')}{statement}\n"
    return [sys.executable, "-W", "ignore", "-c", program, str(PACKAGE), *arguments]


def environment() -> dict[str, str]:
    """Ours, without what would turn hooks and logs on there: nothing is tuned in it. Packages
    are found where this process finds them."""
    theirs = ("ROCM_TUI", "TORCH_LOGS", "TORCH_TRACE")
    env = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    env["PYTHONPATH"] = os.pathsep.join(str(Path(path).absolute()) for path in sys.path)
    return env


KEPT_SECONDS = 10.0
"""So long after a choice the inputs of its tuning are kept for the next one."""
IDLE_SECONDS = 300.0
"""On a GPU an idle process keeps memory that the program may need."""

FORGET = "forget"
"""What is sent at the end of a tuning; there is no answer to it."""


def main(handle: int) -> None:
    """A supervisor ends whatever a choice leaves behind, and ends as this process does."""
    sys.exit(apart(lambda: _serve(handle)))


def _serve(handle: int) -> int:
    pipe = Connection(handle)
    os.dup2(2, 1)  # what a kernel prints is no output of the program

    # torch, before the first clock; and not before the supervisor has forked.
    from backend.inductor.benchmark.request import answer, forget

    pipe.send("ready")
    while _comes(pipe, forget):
        try:
            request = pipe.recv()
        except EOFError:
            return 0
        if request == FORGET:
            forget()
            continue
        said = answer(request)
        pipe.send(said.value)
        if said.last:
            return 0
    return 0


def _comes(pipe: Connection, forget: Callable[[], None]) -> bool:
    """Whether there is something to read, before it was idle for too long."""
    if pipe.poll(KEPT_SECONDS):
        return True
    forget()
    return pipe.poll(IDLE_SECONDS)
