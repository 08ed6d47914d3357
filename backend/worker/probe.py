"""A selector that looks and never tunes: the stock one, but it refuses to benchmark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from backend.inductor.hooks.pins import PinLookup
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch.tuning import ChoiceCaller
from backend.records import TuningKey


@dataclass
class Sight:
    """What the selector was asked during one compile, by key: names of the choices by hash."""

    offered: dict[TuningKey, dict[str, str]] = field(default_factory=dict)
    untimed: list[TuningKey] = field(default_factory=list)
    """Those that stock torch would have benchmarked, since the cache lacks some choice."""


class ProbeSelector(torch_api.LazySelector):
    """Offers all choices of `key`, or the one with the hash `only`.

    With `templates` it is asked about our templates too and honours pins, as under
    `rocm-tui run --templates`.
    """

    def __init__(self, templates: bool = False) -> None:
        super().__init__()
        self._pins = PinLookup() if templates else None
        self.sight = Sight()
        self.only: tuple[TuningKey, str] | None = None

    def __call__(
        self, name: str, choices: Any, input_nodes: Any, layout: Any, *args: Any, **kwargs: Any
    ) -> Any:
        key = torch_api.tuning_key(name, input_nodes, layout, kwargs)
        only = self.only[1] if self.only is not None and self.only[0] == key else None
        if self._pins is not None:
            choices = [*choices, *ours(name, choices, input_nodes, layout)]
            pin = self._pins.find(key, torch_api.system_hash())
            only = only or (pin.hash if pin else None)
        self.sight.offered[key] = {choice.hash_key(): choice.name for choice in choices}
        if only is not None:
            choices = [choice for choice in choices if choice.hash_key() == only]
        return super().__call__(name, choices, input_nodes, layout, *args, **kwargs)

    def lookup(
        self,
        choices: list[ChoiceCaller],
        op: str,
        inputs: str,
        benchmark: Callable[..., Any] | None,
        **kwargs: Any,
    ) -> Any:
        def refuse(_: Any) -> Any:
            self.sight.untimed.append(TuningKey(op, inputs, torch_api.precision()))
            raise RuntimeError("not benchmarked: a check must not change the cache")

        return super().lookup(choices, op, inputs, benchmark and refuse, **kwargs)


def ours(name: str, choices: Any, input_nodes: Any, layout: Any) -> list[Any]:
    """The choices of our templates; the device's scheduling then knows their kernels."""
    from backend.inductor.hooks import offer as rocm_offer
    from backend.inductor.hooks import templates as templates_on

    templates_on.schedule()
    return rocm_offer.offer(name, choices, input_nodes, layout)
