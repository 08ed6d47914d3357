"""The real worker, whose ops have choices of their own beside Inductor's: those of `rogue_acts`.

`rogue_python(folder)` makes an interpreter to give as `--python`; it has torch and our package.
A choice `rogue_hangs` has a hash that begins with that.
"""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

PREFIX = "rogue_"


def rogue_python(folder: Path) -> str:
    path = folder / "python"
    path.write_text(
        f'#!/bin/sh\n[ "$1" = -c ] && exit 0\nexec {sys.executable} -W ignore {__file__} "$@"\n'
    )
    path.chmod(0o755)
    return str(path)


def names() -> list[str]:
    """Of all rogues."""
    from tests.support.rogue_acts import ACTS, LIARS

    return [*ACTS, *LIARS]


def hash_of(name: str) -> str:
    return f"{PREFIX}{name}-x"


def _with_rogues(op: str, choices: Any, nodes: Any, layout: Any) -> list[Any]:
    """Those that the environment names, before Inductor's own, to be met first."""
    found = []
    for name in filter(None, os.environ["ROGUES"].split(",")) if op == "bmm" else ():
        if name not in _made:
            from torch._inductor import select_algorithm

            _made[name] = select_algorithm.ExternKernelChoice(_function(name))
        caller = _made[name].bind(nodes, layout)
        caller.hash_key = functools.partial(hash_of, name)
        found.append(caller)
    return [*found, *choices]


_made: dict[str, Any] = {}


def _function(name: str) -> Any:
    from tests.support.rogue_acts import act

    def rogue(a: Any, b: Any, *, out: Any) -> Any:
        act(name, a, b, out)
        return out

    rogue.__name__ = f"{PREFIX}{name}"
    return rogue


_patched: set[Any] = set()


def _also(stock: Any) -> Any:
    def call(self: Any, op: str, choices: Any, nodes: Any, layout: Any, *a: Any, **k: Any) -> Any:
        return stock(self, op, _with_rogues(op, choices, nodes, layout), nodes, layout, *a, **k)

    return call


def main() -> int:
    from backend.worker import __main__ as loop

    run = loop._run

    def with_rogues(arguments: Any, answers: Any) -> Any:
        from backend.worker.capture import _Selector
        from backend.worker.retuning import RetuneSelector

        for selector in {_Selector, RetuneSelector} - _patched:
            selector.__call__ = _also(selector.__call__)
            _patched.add(selector)
        return run(arguments, answers)

    loop._run = with_rogues
    return loop.main()


if __name__ == "__main__":
    from backend.processes.supervisor import supervised

    sys.exit(supervised(main))
