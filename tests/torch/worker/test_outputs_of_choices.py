"""What choices compute is told apart by the real worker, where a look at the largest error sees
nothing; and of honest ones nothing is said."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.model.choice import Choice, Output
from backend.model.tuning import Tuning
from rocm_tui.actions.measure import Measuring
from rocm_tui.jobs.limits import Limits
from rocm_tui.jobs.run import run_watched
from tests.support.rogue_workers import hash_of, rogue_python

pytestmark = pytest.mark.torch

KEY = (
    "[('cpu', 'torch.bfloat16', 1, 192, 16384, 3145728, 16384, 1, 0), "
    "('cpu', 'torch.bfloat16', 1, 16384, 192, 3145728, 192, 1, 0)]"
)
"""Of 4,000 sums in another order one is rounded to another bfloat16: here some nine."""


def test_another_order_dropped_terms_and_a_race_are_told_apart(tmp_path: Path) -> None:
    """64 of 16,384 terms are less than bfloat16 could lose, were it summed up in that."""
    names = ("honest", "reorders", "drops_terms", "races")
    run = functools.partial(
        run_watched,
        python=rogue_python(tmp_path),
        layout=Layout(tmp_path / "cache"),
        env={**os.environ, "ROGUES": ",".join(names)},
        limits=Limits(),
        on_progress=lambda progress: None,
    )
    choices = tuple(Choice(name, hash_of(name), 1.0) for name in names)
    tuning = Tuning("bmm", inputs_key=KEY, precision="highest", choices=choices)
    found = Measuring(run, tuning, choices, budget=0.2).once()
    assert not found.failed
    seen: dict[str, Output] = {}
    for name in names:
        choice = found.of(hash_of(name))
        assert choice is not None and choice.output is not None
        seen[name] = choice.output
    assert {name for name in names if not seen[name].steady} == {"races"}
    assert {name for name in names if seen[name].beyond} == {"drops_terms"}
    assert len({seen[name].group for name in ("honest", "reorders", "drops_terms")}) == 3
    assert all(output.compared == 192 * 192 and output.runs > 1 for output in seen.values())
    assert seen["drops_terms"].excess > 1 > 2 * seen["reorders"].excess


def _products() -> Iterator[tuple[str, Any, Any, Any, Callable[[], Any]]]:
    """Honest ones: dtype, a, b, bias and the sum, in another order each."""
    import torch

    torch.manual_seed(0)
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        for m, n, k in ((48, 64, 1000), (1, 96, 4096), (33, 17, 7)):
            a, b = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
            bias = torch.randn(n).to(dtype)
            wide = torch.promote_types(dtype, torch.float32)
            x, y = a.to(wide), b.to(wide)
            halves = k // 2
            sums: dict[str, tuple[Any, Callable[[], Any]]] = {
                "ATen": (None, lambda a=a, b=b: torch.mm(a, b)),
                "ATen, weight": (None, lambda a=a, b=b: torch.mm(a, b.t().contiguous().t())),
                "ATen, bias": (bias, lambda a=a, b=b, bias=bias: torch.addmm(bias, a, b)),
                "backwards": (None, lambda x=x, y=y: x.flip(1) @ y.flip(0)),
                "split": (
                    None,
                    lambda x=x, y=y, h=halves: x[:, :h] @ y[:h] + x[:, h:] @ y[h:],
                ),
                "one by one": (
                    None,
                    lambda x=x, y=y: (x.unsqueeze(2) * y).cumsum(1)[:, -1],
                ),
            }
            for name, (added, product) in sums.items():
                yield f"{dtype}, {m}x{n}x{k}, {name}", a, b, added, product


def test_nothing_is_said_of_honest_sums() -> None:
    from backend.inductor.result_checks import OpSpec, exact_product, true_product

    worst, count = 0.0, 0
    for name, a, b, bias, product in _products():
        op, inputs = ("mm", (a, b)) if bias is None else ("addmm", (bias, a, b))
        kept = [tensor.clone() for tensor in inputs]
        asked = OpSpec(op, "highest")
        exact = exact_product(asked, inputs, true_product(asked, inputs))
        assert exact is not None
        assert all(bool((one == two).all()) for one, two in zip(inputs, kept, strict=True)), name
        found = exact.distance(product().to(a.dtype))
        assert found.beyond == 0 and found.compared == a.shape[0] * b.shape[1], (name, found)
        worst, count = max(worst, found.excess), count + 1
    assert count == 72 and 0.1 < worst < 1


def test_a_large_product_is_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of the rows, and some columns at a time."""
    import torch

    from backend.inductor import result_checks, true_results
    from backend.inductor.result_checks import OpSpec, true_product

    monkeypatch.setattr(true_results, "MOST_ELEMENTS", 1000)
    monkeypatch.setattr(result_checks, "_CHUNK", 100)
    a, b = torch.randn(2, 64, 100), torch.randn(2, 100, 33)
    asked = OpSpec("bmm", "highest")
    right = true_product(asked, (a, b))
    exact = result_checks.exact_product(asked, (a, b), right)
    assert exact is not None
    result = torch.bmm(a, b)
    found = exact.distance(result)
    assert found.beyond == 0 and 0 < found.compared < result.numel()
    everything = exact.off / (a[:, right.rows].abs() @ b.abs())
    assert 0.99 < float(everything.min() / everything.max()) <= 1
    result[1, 0, 32] += 1e-2
    assert exact.distance(result).beyond == 1


def test_what_is_a_little_off_is_found_element_by_element() -> None:
    """One term of 1,000 left out of one element."""
    import torch

    from backend.inductor.result_checks import OpSpec, exact_product, true_product

    torch.manual_seed(1)
    a, b = torch.randn(32, 1000), torch.randn(1000, 32)
    asked = OpSpec("mm", "highest")
    exact = exact_product(asked, (a, b), true_product(asked, (a, b)))
    assert exact is not None
    result = a @ b
    result[3, 5] -= a[3, 7] * b[7, 5]
    assert exact.distance(result).beyond == 1
    images, filters = torch.randn(2, 3, 9, 9), torch.randn(4, 3, 3, 3)
    given = (
        ("stride", (1, 1)), ("padding", (1, 1)), ("dilation", (1, 1)), ("transposed", (0,)),
        ("output_padding", (0, 0)), ("groups", (1,)),
    )  # fmt: skip
    asked = OpSpec("convolution", "highest", given)
    exact = exact_product(asked, (images, filters), true_product(asked, (images, filters)))
    assert exact is not None
    right = torch.conv2d(images, filters, padding=1)
    assert exact.distance(right).beyond == 0
    right[1, 2, 3, 4] += 1e-3
    assert exact.distance(right).beyond == 1
