"""How the kernels of two choices of our templates differ, as a unified diff."""

from __future__ import annotations

import difflib

from backend.model.choice import Choice
from backend.model.origin import template_of
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.format import plain
from rocm_tui.session.kernel_source import NoKernelSource, source_of

_AROUND = 3
"""Lines of context."""


def source_diff(tuning: Tuning, one: Choice, two: Choice, session: Session | None) -> list[str]:
    """Lines from the kernel of `one` to that of `two`; none if they are the same.

    Raises NoKernelSource, naming the choice, where a source cannot be made again.
    """
    sources = []
    for choice in (one, two):
        if not template_of(choice):
            raise NoKernelSource(
                f"{choice.label} is no choice of our templates: only their sources are at hand"
            )
        try:
            sources.append(source_of(tuning, choice, session).splitlines())
        except NoKernelSource as error:
            raise NoKernelSource(f"no source of {choice.label} is at hand: {error}") from error
    before, after = sources
    lines = difflib.unified_diff(before, after, one.label, two.label, n=_AROUND, lineterm="")
    return [plain(line) for line in lines]
