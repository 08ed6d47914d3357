"""Text with places that are filled in later.

The arguments of a kernel stand at its top, but are known only when the rest has been written: a
template leaves a mark there, and the mark gets its text at the end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from backend.templates.triton.errors import HookError

_MARK = re.compile(r"@@([A-Z][A-Z0-9_]*)@@")


def mark(name: str) -> str:
    """What stands in the text until hook `name` is filled. No Python source holds `@@`."""
    return f"@@{name}@@"


class PartialRender:
    """A rendered text and the hooks that its marks stand for, each filled exactly once.

    Hooks are filled in the order of `hooks`, which need not be the order in the text. A hook's text
    is never searched for marks. Its lines after the first get the indentation of the mark.
    Raises HookError if marks and hooks do not match one to one.
    """

    def __init__(self, text: str, hooks: Mapping[str, Callable[[], str]]) -> None:
        pieces = _MARK.split(text)
        self._fixed = pieces[::2]
        self._names = pieces[1::2]
        self._hooks = dict(hooks)
        self._filled: dict[str, str] = {}
        for name in self._names:
            if name not in self._hooks:
                raise HookError(f"the template has a mark {mark(name)} that no hook fills")
            if self._names.count(name) > 1:
                raise HookError(f"the template has {mark(name)} more than once")
        for name in self._hooks:
            if name not in self._names:
                raise HookError(f"hook {name} has no mark in the template: its text would be lost")

    @property
    def open_hooks(self) -> tuple[str, ...]:
        """Hooks still to be filled, in the order in which `finalize_all` fills them."""
        return tuple(name for name in self._hooks if name not in self._filled)

    def finalize_hook(self, name: str) -> None:
        """Fill one hook now. Raises HookError if it is unknown or was filled before."""
        if name not in self._hooks:
            known = ", ".join(self._hooks) or "none"
            raise HookError(f"there is no hook {name}; hooks here: {known}")
        if name in self._filled:
            raise HookError(f"hook {name} was filled before; a hook is filled once")
        self._filled[name] = self._hooks[name]()

    def finalize_all(self) -> str:
        """Fill every hook that is still open and return the text."""
        for name in self.open_hooks:
            self.finalize_hook(name)
        return self.text()

    def text(self) -> str:
        """The finished text. Raises HookError while a hook is open."""
        if self.open_hooks:
            raise HookError(f"hooks not filled yet: {', '.join(self.open_hooks)}")
        out = self._fixed[0]
        for name, fixed in zip(self._names, self._fixed[1:], strict=True):
            out += _indented(self._filled[name], column=_indent_of(out)) + fixed
        return out


def _indent_of(text: str) -> str:
    line = text[text.rfind("\n") + 1 :]
    return line if not line.strip() else ""


def _indented(text: str, column: str) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *(column + line if line else line for line in rest)])
