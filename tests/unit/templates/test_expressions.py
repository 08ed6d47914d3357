"""Every pointwise function in C++ against torch's own, and what cannot be written is refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from backend.errors import ExpressionError
from backend.templates.expressions import (
    CPP_VALUE,
    FORMS,
    ChainBuilder,
    ChainStep,
    defect,
    in_cpp,
    in_triton,
)
from backend.toolchain import code_cache
from backend.toolchain.target import cpu
from tests.support import template_lab
from tests.support.chains import evaluate
from tests.support.toolchain_kernels import available

pytestmark = pytest.mark.skipif(not available(cpu()), reason="no C++ compiler")

DTYPES = {"float": "float32", "double": "float64", "int": "int8", "bool": "bool"}
CHAINS: dict[str, tuple[ChainStep, ...]] = {}
for _kind, _dtype in DTYPES.items():
    for _name, _form in FORMS[_kind].items():  # type: ignore[index]
        _chain = ChainBuilder()
        _args = [_chain.load("xyz"[at], _dtype) for at in range(_form.arity)]
        _chain.apply(_name, *_args)
        CHAINS[f"{_name}-{_dtype}"] = _chain.steps
for _source in ("float32", "int64", "bool", "uint8"):
    for _target in CPP_VALUE:
        _chain = ChainBuilder()
        _chain.cast(_chain.load("x", _source), _target)
        if len(_chain.steps) > 1:
            CHAINS[f"{_source}-to-{_target}"] = _chain.steps
for _target in ("float16", "bfloat16"):
    _chain = ChainBuilder()
    _chain.cast(_chain.load("x", "float32"), _target, rounded=True)
    CHAINS[f"narrow-{_target}"] = _chain.steps
_chain = ChainBuilder()
_x = _chain.load("x", "float32")
_chain.where(_chain.apply("lt", _x, _chain.constant(-math.inf, "float32")), _x, _x)
_chain.where(_chain.apply("isnan", _x), _chain.constant(0.1, "float16"), _x)
CHAINS["where"] = _chain.steps

EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.5, -2.5, 1e-30, -1e-30, 3e-39, 87.0, -87.0, 1e30, -1e30]
ODD = [math.inf, -math.inf, math.nan]


def values(dtype: str) -> list[torch.Tensor]:
    """Three operands of every kind of number."""
    torch.manual_seed(0)
    if dtype == "bool":
        return [torch.tensor([0, 0, 1, 1]).bool(), torch.tensor([0, 1, 0, 1]).bool()]
    if "int" in dtype:
        kind = getattr(torch, dtype)
        least = torch.iinfo(kind).min
        return [torch.cat([torch.randint(-9, 9, (200,)), torch.tensor([least, -1, 127])]).to(kind)
                for _ in range(3)]  # fmt: skip
    many = torch.cat([torch.randn(500) * 3, torch.randn(200) * 40, torch.tensor(EDGES)])
    return [torch.cat([many[torch.randperm(many.numel())], torch.tensor(ODD)]).to(
        getattr(torch, dtype)) for _ in range(3)]  # fmt: skip


def _stored(dtype: str) -> str:
    return "uint8_t" if dtype == "bool" else CPP_VALUE[dtype]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[code_cache.Library]:
    """One entry a chain."""
    parts = ["#include <rocm_tui/gpu.h>"]
    for number, steps in enumerate(CHAINS.values()):
        loads = {step.text: step.dtype for step in steps if step.function == "load"}
        inputs = [f"const {_stored(dtype)}* {name}" for name, dtype in loads.items()]
        parameters = ", ".join([*inputs, f"{_stored(steps[-1].dtype)}* out", "int count"])
        body = [
            *in_cpp(steps, lambda step: f"rt::convert<{CPP_VALUE[step.dtype]}>({step.text}[i])"),
            f"out[i] = t{len(steps) - 1};",
        ]
        parts += [
            f"RT_EXPORT int chain{number}({parameters}) {{",
            "  for (int i = 0; i < count; ++i) {",
            *body,
            "  }",
            "  return 0;",
            "}",
        ]
    root: Path = tmp_path_factory.mktemp("code")
    options = replace(template_lab.OPTIONS, level=1)
    yield code_cache.load(
        code_cache.compile("\n".join(parts), cpu(), options, cache_root=root).path
    )


@pytest.mark.parametrize("name", CHAINS)
def test_the_same_as_torch(library: code_cache.Library, name: str) -> None:
    steps = CHAINS[name]
    loads = {step.text: step.dtype for step in steps if step.function == "load"}
    given = values(next(iter(loads.values())))[: len(loads)]
    if "-to-" in name and "int" in name:  # what no integer type has is torch's own affair
        given = [x[x.isfinite() & (x.abs() < 100)] if x.is_floating_point() else x for x in given]
    if "gelu" in name:  # torch's own has NaN for infinity
        given = [x[x.isfinite()] for x in given]
    named = dict(zip(loads, given, strict=True))
    out = torch.zeros(given[0].numel(), dtype=getattr(torch, steps[-1].dtype))
    types = code_cache.argtypes(len(given) + 1, 1)[: len(given) + 2]
    entry = library.entry(f"chain{list(CHAINS).index(name)}", types)
    assert entry(*(x.data_ptr() for x in given), out.data_ptr(), out.numel()) == 0
    want = evaluate(steps, torch.zeros(()), named, wide=False)[-1]
    assert out.dtype == want.dtype
    if out.is_floating_point():
        # A few units in the last place; 1 + erf and 1 + tanh lose some where they are nearly 0.
        least = 2e-6 if "gelu" in name else 2e-38
        assert torch.allclose(out, want, rtol=2e-6, atol=least, equal_nan=True), name
        assert torch.equal(out.isnan(), want.isnan())
    else:
        assert torch.equal(out, want), name


def test_the_same_step_is_computed_once() -> None:
    chain = ChainBuilder()
    x = chain.value()
    for _ in range(60):
        x = chain.apply("add", x, x)
    again = ChainBuilder()
    y = again.value()
    assert again.apply("exp", y) == again.apply("exp", y)
    assert len(chain.steps) == 61 and len(again.steps) == 2
    # Zero and minus zero are equal, and not the same.
    assert again.constant(0.0, "float32") != again.constant(-0.0, "float32")


def test_operands_are_made_alike() -> None:
    chain = ChainBuilder()
    narrow, wide = chain.load("n", "int8"), chain.load("w", "float16")
    assert chain.apply("add", narrow, wide).dtype == "float32"
    assert chain.apply("add", narrow, chain.load("u", "uint8")).dtype == "int16"
    assert chain.apply("lt", narrow, wide).dtype == "bool"


def test_what_cannot_be_computed_is_refused() -> None:
    chain = ChainBuilder()
    x, k = chain.value(), chain.load("k", "int64")
    for function, args in (("sin", [x]), ("exp", [k]), ("add", [x]), ("truediv", [k, k])):
        with pytest.raises(ExpressionError, match=f"no {function} of"):
            chain.apply(function, *args)
    with pytest.raises(ExpressionError, match="a cast to complex64"):
        chain.cast(x, "complex64")
    with pytest.raises(ExpressionError, match="a tensor of complex64"):
        chain.load("z", "complex64")


def test_triton_is_asked_for_what_it_has() -> None:
    chain = ChainBuilder()
    x = chain.apply("add", chain.value(), chain.constant(math.inf, "float32"))
    lines = in_triton(chain.steps, lambda step: "acc", "t")
    assert lines[1:] == ['t1 = tl.full((1, 1), float("inf"), tl.float32)', "t2 = t0 + t1"]
    chain.apply("log1p", x)
    assert defect(chain.steps, "cpp") is None
    with pytest.raises(ExpressionError, match="no log1p in triton"):
        in_triton(chain.steps, lambda step: "acc", "t")
