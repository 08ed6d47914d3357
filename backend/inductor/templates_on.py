"""Our templates in Inductor: their choices beside its own, their calls in its code."""

from __future__ import annotations

import functools
from typing import Any

from backend.inductor import rocm_offer, torch_api, torch_graph
from backend.inductor.guard import Stock, beside, quietly
from backend.inductor.rocm_checking import CheckingSelector, failures
from backend.inductor.rocm_errors import NoValidChoicesError
from backend.inductor.rocm_scheduling import with_templates
from backend.inductor.rocm_sound import sound
from backend.inductor.selector import Selector

DEVICES = ("cpu", "cuda")
"""ROCm's devices are called `cuda` too."""


def install() -> None:
    """Take the place of our selector that knows no templates; again, nothing."""
    current = torch_api.selector()
    if isinstance(current, Selector) and not isinstance(current, TemplateSelector):
        torch_api.set_selector(TemplateSelector(*current.parts))


def install_checks() -> None:
    """Take the place of our selector that believes every result."""
    current = torch_api.selector()
    if isinstance(current, Selector) and not isinstance(current, CheckingSelector):
        torch_api.set_selector(CheckedSelector(*current.parts))


class CheckedSelector(Selector, CheckingSelector):
    """The selector that records and honours pins, and compares results where that is wanted."""


class TemplateSelector(CheckedSelector):
    """The same, asked about our choices too."""

    def __call__(
        self, name: str, choices: Any, input_nodes: Any, layout: Any, *args: Any, **kwargs: Any
    ) -> Any:
        return beside(
            super().__call__, self._with_ours, name, choices, input_nodes, layout, *args, **kwargs
        )

    def _with_ours(
        self,
        stock: Stock,
        name: str,
        choices: Any,
        input_nodes: Any,
        layout: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        offered = [*choices, *_offered(name, choices, input_nodes, layout)]
        failures().clear()
        try:
            return stock(name, offered, input_nodes, layout, *args, **kwargs)
        except torch_api.StockNoValidChoicesError as error:
            shapes = ", ".join("x".join(map(str, node.get_size())) for node in input_nodes)
            raise NoValidChoicesError(name, shapes, failures()) from error


def _offered(name: str, choices: Any, input_nodes: Any, layout: Any) -> list[Any]:
    """Ours; none, and a line that says why, where making them goes wrong."""
    with quietly("our templates are not offered"):
        schedule()
        return sound(rocm_offer.offer(name, choices, input_nodes, layout), choices)
    return []


@functools.cache
def schedule() -> None:
    """Let each device's scheduling know our kernels. Not before the first tuning: it imports all
    of Inductor's backends."""
    for device in DEVICES:
        torch_graph.wrap_scheduling(device, with_templates)
