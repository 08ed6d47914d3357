"""Kernels of ours in wrappers of C++. One graph has all of them: such a wrapper takes long to
compile."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
import torch
from torch._inductor import config
from torch._inductor.virtualized import V

from backend.disk.layout import Layout
from backend.inductor.hooks import templates
from backend.inductor.torch import graph as torch_graph
from backend.pins.graphs.index import GraphIndex
from backend.pins.graphs.match import WantedChoice
from tests.support.rocm_programs import Ran, last_session, run

pytestmark = pytest.mark.torch

PRODUCTS = """
import dataclasses
from torch._inductor import select_algorithm
from backend.inductor.hip.scheduling import ROCmCPPScheduling
from backend.templates import heuristics

config.cpp_wrapper = True
config.cpp_cache_precompile_headers = False

def ours_alone(choices):
    return [choice for choice in choices if choice.name.startswith("rocm_gemm")][:1]

select_algorithm.add_preprocessing_fn(ours_alone)
gemm_configs, define = heuristics.gemm_configs, ROCmCPPScheduling.define_rocm_kernel

def split_where_deep(problem, target, sizes, *rest):
    split = 3 if sizes.k > 1000 else 1
    configs = gemm_configs(problem, target, sizes, *rest)
    return [dataclasses.replace(config, split_k=split) for config in configs]

def all_but_one(self, kernel, source, buffer, *rest):
    if buffer.template.beta == 2:
        raise RuntimeError("planted")
    return define(self, kernel, source, buffer, *rest)

heuristics.gemm_configs = split_where_deep
ROCmCPPScheduling.define_rocm_kernel = all_but_one
R = torch.randn

def products(a, b, c, d, bias, deep, flat):
    return {
        "fused": torch.relu(a @ b),
        "view": (a + 1)[2:30, 8:40] @ b[8:40],
        "batch": torch.bmm(c, d.transpose(1, 2)),
        "bias": torch.addmm(bias, a, b, alpha=0.5),
        "aten": torch.relu(torch.baddbmm(d.sum(1)[:, None, :1], c, d.transpose(1, 2), beta=2)),
        "split": deep @ flat,
    }

compiled = torch.compile(products, dynamic=True)
for m, k, n in ((37, 64, 96), (50, 66, 70)):
    given = [R(m, k), R(k, n), R(4, m, k), R(4, n, k), R(n), R(m, 2000 + m), R(2000 + m, n)]
    got, want = compiled(*given), products(*given)
    for name, right in want.items():
        error = ((got[name] - right).abs().max() / right.abs().max()).item()
        assert error < 1e-5, (name, error)
        print(f"{name}-{m} agrees {error}", flush=True)
print("graphs", torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Layout:
    return Layout(tmp_path_factory.mktemp("cpp") / "cache")


@pytest.fixture(scope="module")
def ran(layout: Layout) -> Ran:
    return run(PRODUCTS, layout.root)


def calls(ran: Ran) -> list[str]:
    return re.findall(r"\brocm_gemm_\d+\((?!const).*\);$", ran.stderr, re.MULTILINE)


def test_products_of_every_kind_are_right_at_any_size(ran: Ran) -> None:
    names = ("fused", "view", "batch", "bias", "aten", "split")
    assert ran.agreed == [f"{name}-{m}" for m in (37, 50) for name in names]
    assert "graphs 1" in ran.stdout
    fused, view, _, _, split = calls(ran)
    assert "nullptr, nullptr" in fused and "s" in fused.split("buf")[1]  # sizes by name
    assert re.search(r"static_cast<char\*>\(\w+\.data_ptr\(\)\) \+ 4 \* \(", view)
    assert re.search(r"3L, workspace_\d+\.data_ptr\(\), nullptr\);", split)


def test_where_ours_cannot_be_called_aten_is(ran: Ran) -> None:
    assert ran.stderr.count("a kernel of ours cannot be called, ATen's is: RuntimeError") == 1
    assert ran.stderr.count("aoti_torch_cpu_baddbmm_out(") == 1
    assert "rocm-tui: our templates are not offered" not in ran.stderr


def test_the_graph_says_which_choices_it_calls(ran: Ran, layout: Layout) -> None:
    index, called = GraphIndex(layout), 0
    for start, _ in last_session(layout.root):
        hashes = [choice.hash for choice in start.choices if choice.hash]
        ours = next(choice for choice in start.choices if choice.name.startswith("rocm_gemm"))
        if start.op == "baddbmm" or not ours.hash:
            continue
        wanted = WantedChoice(start.op, start.inputs, ours.hash, hashes)
        assert set(index.verdicts(index.live(), wanted)) - {"absent"} == {"same"}
        called += 1
    assert called == 5


def test_where_a_wrapper_cannot_call_ours_one_line_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = SimpleNamespace(cpp_wrapper=True, is_const_graph=False)
    with V.set_graph_handler(graph):
        assert torch_graph.why_no_calls() == ""
        with config.patch("aot_inductor.allow_stack_allocation", True):
            assert "stack" in torch_graph.why_no_calls()
        monkeypatch.setattr(torch, "__version__", "2.11.0+cpu")
        assert torch_graph.why_no_calls() == "a C++ wrapper of torch 2.11.0+cpu"
        graph.cpp_wrapper = False
        assert torch_graph.why_no_calls() == ""


def test_templates_that_are_not_offered_say_why(capfd: pytest.CaptureFixture[str]) -> None:
    with config.patch({"max_autotune": True, "fx_wrapper": True}):
        assert [templates.offer("mm", (), (), None) for _ in range(2)] == [[], []]
    said = "our templates are not offered: a wrapper that is an FX graph does not call our kernels"
    assert capfd.readouterr().err.count(said) == 1
