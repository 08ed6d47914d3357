"""Choices of ours whose methods cannot fail the program: what goes wrong costs that choice alone.

torch sets a choice aside whose benchmark raises a RuntimeError. Anything else that a choice raises
would end the compile; so what does not change is asked for once, when the choice is offered, and
what is called late has something to fall back on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from backend.inductor import guard, torch_api
from backend.inductor.rocm_errors import ErrorFromChoice
from backend.inductor.saying import say_once
from backend.inductor.torch_api import ChoiceCaller

_ASKED_ONCE = ("hash_key", "kernel_hash_key", "call_name", "info_dict")


def sound(ours: Sequence[ChoiceCaller], others: Sequence[ChoiceCaller]) -> list[ChoiceCaller]:
    """Those of `ours` that can be offered beside `others`, which are those of torch."""
    aten = next((choice for choice in others if torch_api.is_extern(choice)), None)
    found = []
    for choice in ours:
        with guard.quietly("a choice of ours is not offered"):
            found.append(_sound(choice, aten))
    return found


def _sound(choice: ChoiceCaller, aten: ChoiceCaller | None) -> ChoiceCaller:
    str(choice)
    for name in _ASKED_ONCE:
        setattr(choice, name, _constant(getattr(choice, name)()))
    choice.precompile = _precompile(choice.precompile)
    choice.benchmark = _benchmark(choice, choice.benchmark)
    choice.output_node = _output_node(choice, choice.output_node, aten)
    return choice


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value


def _precompile(precompile: Callable[[], None]) -> Callable[[], None]:
    """What is no answer of a compiler is told by the benchmark, which comes here again."""

    def sound_precompile() -> None:
        try:
            precompile()
        except RuntimeError:
            raise
        except Exception:
            return

    return sound_precompile


def _benchmark(choice: ChoiceCaller, benchmark: Callable[..., float]) -> Callable[..., float]:
    def sound_benchmark(*args: Any, **kwargs: Any) -> float:
        try:
            return benchmark(*args, **kwargs)
        except RuntimeError:
            raise
        except Exception as error:
            sizes = ", ".join(str(tuple(tensor.shape)) for tensor in args)
            raise ErrorFromChoice(guard.told(error), choice, sizes) from error

    return sound_benchmark


def _output_node(
    choice: ChoiceCaller, output_node: Callable[[], Any], aten: ChoiceCaller | None
) -> Callable[[], Any]:
    """The node of a choice that has won; that of ATen where ours cannot be made."""

    def sound_output_node() -> Any:
        try:
            return output_node()
        except Exception as error:
            if aten is None:
                raise
            say_once(
                f"{choice.name} has won and cannot be called: {guard.told(error)}; "
                f"{aten.name} is called instead"
            )
            choice.replaced_by = aten
            return aten.output_node()

    return sound_output_node
