"""Doing something right after a module was imported, without importing it ourselves.

Importing `torch._inductor` takes seconds, and most programs that import torch never compile.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from types import ModuleType

from backend.inductor.guard import quietly


def when_imported(name: str, action: Callable[[], None]) -> None:
    """Call `action` once the module `name` has been executed: now, or after its import."""
    module = sys.modules.get(name)
    if module is not None and not _initializing(module):
        action()
        return
    sys.meta_path.insert(0, _Finder(name, action))


def _initializing(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module, by asking the others, and gives it a loader that tells us."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name = name
        self._action = action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        with quietly(f"the hooks are off: {fullname} cannot be watched"):
            spec = find_spec(fullname)
            if spec is not None and spec.loader is not None:
                spec.loader = _Loader(spec.loader, self._action)
                return spec
        return None  # the others, who are asked next, find what there is


class _Loader(importlib.abc.Loader):
    """The module's own loader, and then the action."""

    def __init__(self, loader: importlib.abc.Loader, action: Callable[[], None]) -> None:
        self._loader = loader
        self._action = action

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)  # get_source and others, for tracebacks and inspect

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        with quietly(f"the hooks are off: {module.__name__} cannot be hooked"):
            self._action()
