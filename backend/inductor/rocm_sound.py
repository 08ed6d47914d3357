"""Choices of ours that cannot fail the program: what goes wrong costs that choice alone.

torch sets a choice aside whose benchmark raises a RuntimeError. Anything else that a choice raises
would end the compile; so what torch asks of each is asked for when it is offered, and a winner has
something to fall back on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from backend.inductor import guard, torch_api
from backend.inductor.saying import say_once
from backend.inductor.torch_api import ChoiceCaller

_ASKED = ("__str__", "hash_key", "kernel_hash_key", "call_name", "info_dict")


def sound(ours: Sequence[ChoiceCaller], others: Sequence[ChoiceCaller]) -> list[ChoiceCaller]:
    """Those of `ours` that can be offered beside `others`, which are those of torch."""
    aten = next((choice for choice in others if torch_api.is_extern(choice)), None)
    found = []
    for choice in ours:
        with guard.quietly("a choice of ours is not offered"):
            for name in _ASKED:
                getattr(choice, name)()
            choice.aten = aten
            found.append(choice)
    return found


def or_aten(choice: ChoiceCaller, output_node: Callable[[], Any]) -> Any:
    """The node of a choice of ours that has won; that of ATen's where it cannot be made."""
    try:
        return output_node()
    except Exception as error:
        aten = getattr(choice, "aten", None)
        if aten is None:
            raise
        why = f"{choice.name} has won and cannot be called: {guard.told(error)}"
        say_once(f"{why}; {aten.name} is called instead")
        choice.replaced_by = aten
        return aten.output_node()
