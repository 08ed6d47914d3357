"""Inductor's selector with choices put in place, as raised numbers of a pin would put them there.

A pin that stock PyTorch follows is nothing but numbers: its rivals' times are raised. So the
selector sees the same here, and whatever Inductor decides by these times, such as what it fuses
with what, it decides as a program with the pin.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from backend.cache.autotune import raise_ms
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.tuning import ChoiceCaller
from backend.model.origin import is_own
from backend.model.problem import TuningKey
from backend.worker.problem import ours


class SwapSelector(torch_api.LazySelector):
    """`swaps` are the choices to put in place; `offered` tells what was there to choose from."""

    def __init__(self, swaps: Mapping[TuningKey, str]) -> None:
        super().__init__()
        self._swaps = swaps
        self._templates = any(map(is_own, swaps.values()))
        self.offered: dict[TuningKey, dict[str, str]] = {}

    def __call__(
        self, name: str, choices: Any, input_nodes: Any, layout: Any, *args: Any, **kwargs: Any
    ) -> Any:
        if len(choices) < 2 and not torch_api.wants_tuning():
            return super().__call__(name, choices, input_nodes, layout, *args, **kwargs)
        key = torch_api.tuning_key(name, input_nodes, layout, kwargs)
        wanted = self._swaps.get(key)
        if self._templates and wanted is not None and is_own(wanted):
            choices = [*choices, *ours(name, choices, input_nodes, layout)]
            own = [choice for choice in choices if choice.hash_key() == wanted]
            self._saw(key, choices)
            choices = own or choices
        self._saw(key, choices)
        return super().__call__(name, choices, input_nodes, layout, *args, **kwargs)

    def _saw(self, key: TuningKey, choices: Any) -> None:
        names = self.offered.setdefault(key, {})
        names.update({choice.hash_key(): str(choice.name) for choice in choices})

    def lookup(
        self,
        choices: list[ChoiceCaller],
        op: str,
        inputs: str,
        benchmark: Callable[..., Any] | None,
        **kwargs: Any,
    ) -> Any:
        timings = super().lookup(choices, op, inputs, benchmark, **kwargs)
        wanted = self._swaps.get(TuningKey(op, inputs, torch_api.precision()))
        if wanted is None or not any(choice.hash_key() == wanted for choice in timings):
            return timings
        return {
            choice: ms if choice.hash_key() == wanted else raise_ms(ms)
            for choice, ms in timings.items()
        }
