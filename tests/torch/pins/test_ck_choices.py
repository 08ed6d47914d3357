"""PyTorch's own choices of Composable Kernel: what is recorded of them, and which one a graph
calls, by the text that PyTorch's template writes. None was compiled or run here."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch._inductor.codegen.rocm.ck_universal_gemm_template import CKGemmTemplate
from torch._inductor.codegen.rocm.rocm_kernel import ROCmTemplateCaller

from backend.inductor.hooks.tuning_watch import choice_record
from backend.model.choice import parse_config
from backend.model.origin import is_own, provider
from backend.pins.graphs.match import WantedChoice, judge
from backend.pins.graphs.text import read_graph_text
from tests.support.graph_lab import GRAPH, KEY, form

LIBRARY = Path(__file__).parents[2] / "support" / "ck_like"

CALL = """
async_compile = AsyncCompile()

# Topologically Sorted Source Nodes: [mm], Original ATen: [aten.mm]
rocm_fused_mm_0 = async_compile.rocm(r'''
{source}
''', 'so', aot_compile=False)

def call(args):
    assert_size_stride(arg0_1, ({{m}}, 256), (256, 1))
    assert_size_stride(arg1_1, (256, 128), (128, 1))
    buf0 = empty_strided_cuda(({{m}}, 128), (128, 1), torch.float16)
    rocm_fused_mm_0.rocm_fused_mm_0(c_void_p(arg0_1.data_ptr()), c_void_p(arg1_1.data_ptr()))
    return (buf0, )
"""


@pytest.fixture(scope="module")
def operations() -> list[Any]:
    sys.path.insert(0, str(LIBRARY))
    try:
        from ck4inductor.universal_gemm import gen_instances

        first = gen_instances.gen_ops_library()[0]
    finally:
        sys.path.remove(str(LIBRARY))
    return [first, replace(first, k_per_block=64), replace(first, a_block_lds_extra_m=False)]


def caller(operation: Any, number: int) -> ROCmTemplateCaller:
    """The real class; what compiles and runs it is not asked for."""
    request: Any = SimpleNamespace(hash_key=f"c{number}", source_file="")
    name, given = f"rocm_ck_gemm_template_{number}", {"op": operation, "kBatch": 1}
    none: Any = None
    return ROCmTemplateCaller(name, "ck_gemm_template", [], none, none, request, none, given)


def test_what_is_recorded_of_them(operations: list[Any]) -> None:
    record = choice_record(caller(operations[1], 1))
    assert provider(record) == "ck" and not is_own(record.hash)
    assert record.hash == "ck_gemm_template-c1"
    config = parse_config(record.description)
    assert config["K_PER_BLOCK"] == "64" and config["KBATCH"] == "1"
    assert config["GEMM_SPECIALIZATION"] == "MNKPadding"
    assert config["A_BLOCK_TRANSFER_THREAD_CLUSTER_LENGTHS_AK0_M_AK1"] == "(4, 16, 1)"


def test_which_one_a_graph_calls(operations: list[Any]) -> None:
    template: Any = object.__new__(CKGemmTemplate)
    template.is_batched = False
    records = [choice_record(caller(operation, n)) for n, operation in enumerate(operations)]
    rivals = tuple(str(record.hash) for record in records)
    assert len(set(rivals)) == len(operations) > 1
    for called, operation in enumerate(operations):
        source, _ = template.emit_ck_instance(operation)
        text = form(CALL.format(source=source) + GRAPH)
        for number, record in enumerate(records):
            config = parse_config(record.description)
            wanted = WantedChoice("mm", KEY, str(record.hash), rivals, config)
            expected = "same" if number == called else "other"
            assert judge(read_graph_text(text.encode()), wanted) == expected, (called, number)
        aten = WantedChoice("mm", KEY, "mm-c1", (*rivals, "mm-c1"))
        assert judge(read_graph_text(text.encode()), aten) == "other"
