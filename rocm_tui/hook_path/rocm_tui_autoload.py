"""What `rocm-tui run` and the workers put within reach of a Python that has none of our packages.

Of our environment this folder alone is on `PYTHONPATH`. It gives
the program no package `backend` of its own either: that name is common. Only when torch calls
`autoload`, and the program has no `backend`, ours is found, after everything else. Where our
packages are installed, `rocm_tui.activate` comes here too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec, spec_from_file_location
from typing import Any

RUN = "ROCM_TUI_RUN"


class BackendFinder(MetaPathFinder):
    """Finds the one package `backend`, in `folder`. The last finder also hears of a module that is
    not in it, and says where the program has a package of that name."""

    def __init__(self, folder: str, last: bool = False) -> None:
        self.folder = folder
        self._last = last

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != "backend":
            ours = self._last and fullname.startswith("backend.")
            theirs = PathFinder.find_spec("backend") if ours else None
            if theirs is not None:
                self._last = False  # once is enough
                where = theirs.origin or ", ".join(theirs.submodule_search_locations or ())
                _say(f"{where} came too late, and ours hides it: put it on PYTHONPATH")
            return None
        return spec_from_file_location(
            fullname,
            os.path.join(self.folder, "__init__.py"),  # noqa: PTH118 - pathlib costs 5 ms here
            submodule_search_locations=[self.folder],
        )


def autoload() -> None:
    """What torch calls at the end of `import torch`. Never raises."""
    if RUN not in os.environ:
        return
    with_backend(lambda: _folder(os.environ[RUN]), lambda activation: activation.autoload())


def with_backend(folder: Callable[[], str], action: Callable[[Any], Any]) -> bool:
    """Call `action` with our module `activation`, and return whether it was called and returned
    anything but False. Never raises; a failure is one line on stderr."""
    try:
        taken = provide(folder())
        if taken is not None:
            _say(f"{taken} is found as `backend` and hides ours; the program runs unhooked")
            return False
        from backend.inductor.hooks import activation

        return action(activation) is not False
    except Exception as error:  # the outermost boundary: the program must go on
        _say(f"the hooks are off: {type(error).__name__}: {error}")
        return False


def provide(folder: str, first: bool = False) -> str | None:
    """Let `import backend` find `folder`, unless the name is taken: then return who took it."""
    if first:
        sys.meta_path.insert(0, BackendFinder(folder))
        return None
    spec = _found()
    if spec is None:
        sys.meta_path.append(BackendFinder(folder, last=True))
        return None
    places = list(spec.submodule_search_locations or ())
    if any(_is_ours(place) for place in places):
        return None
    return spec.origin or ", ".join(places) or "another module"


def _found() -> ModuleSpec | None:
    try:
        return find_spec("backend")
    except ValueError:  # a module that the program made by hand has no spec
        return ModuleSpec("backend", None, origin="a module of the program")


def _is_ours(place: str) -> bool:
    """Whether our package, this copy or an installed one, is there."""
    return os.path.exists(os.path.join(place, "inductor", "hooks", "activation.py"))  # noqa: PTH110, PTH118


def _folder(text: str) -> str:
    if not text.startswith("{"):
        with open(text) as stream:  # noqa: PTH123
            text = stream.read()
    return str(json.loads(text)["backend"])


def _say(line: str) -> None:
    try:
        words = " ".join(line.split())
        harmless = "".join(c if c.isprintable() else "?" for c in words)  # a path may hold escapes
        sys.stderr.write(f"rocm-tui: {harmless}\n")
    except Exception:  # whatever stands there raises what it likes
        return
