"""Dataclasses whose methods are compiled when they are first called.

Python compiles up to six methods of every dataclass as its module is loaded, of which a program
calls a few. Before the screen shows rows there are a hundred such classes: a fifth of its start.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

_Method = Callable[..., Any]

_MAKER = "_create_fn"
"""What makes each method, up to Python 3.12; later ones have none, and stay as they are."""


def compile_when_called() -> None:
    """From now on, of all classes that this process makes."""
    make = vars(dataclasses).get(_MAKER)
    if make is not None and not isinstance(make, partial):
        setattr(dataclasses, _MAKER, partial(_late, make))


def _late(make: Callable[..., _Method], name: str, *source: Any, **context: Any) -> _Method:
    """A method that makes the one it stands for, and lets that take its place."""
    made: _Method | None = None

    def method(self: object, *args: Any, **named: Any) -> Any:
        nonlocal made
        if made is None:
            made = make(name, *source, **context)
            made.__qualname__ = method.__qualname__
        for kind in type(self).__mro__:
            if vars(kind).get(name) is method:
                setattr(kind, name, made)
        return made(self, *args, **named)

    method.__name__ = name
    return method
