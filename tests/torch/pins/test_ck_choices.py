"""PyTorch's own choices of Composable Kernel: what is recorded of them, and which one a graph
calls, by the text that PyTorch's template writes. None was compiled or run here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

from torch._inductor.codegen.rocm.ck_universal_gemm_template import CKGemmTemplate
from torch._inductor.codegen.rocm.rocm_kernel import ROCmTemplateCaller

from backend.inductor.hooks.tuning_watch import choice_record
from backend.model.choice import parse_config
from backend.model.origin import is_own, provider
from backend.pins.graphs.match import WantedChoice, judge
from backend.pins.graphs.text import read_graph_text
from tests.support.graph_lab import GRAPH, KEY, form

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


@dataclass(frozen=True)
class CKGemmOperation:
    """Some of the parameters of ck4inductor's class of this name, in its order."""

    a_layout: str = "Row"
    b_layout: str = "Row"
    ds_layouts: tuple[str, ...] = ()
    c_layout: str = "Row"
    a_element_dtype: str = "F32"
    gemm_specialization: str = "GemmSpecialization::MNKPadding"
    block_size: int = 64
    m_per_block: int = 16
    n_per_block: int = 16
    k_per_block: int = 32
    a_block_transfer_thread_cluster_lengths_ak0_m_ak1: tuple[int, int, int] = (4, 16, 1)
    a_block_lds_extra_m: bool = True
    block_gemm_pipeline_version: str = "BlockGemmPipelineVersion::v1"
    a_compute_dtype: str | None = None

    def name(self) -> str:
        return "ck_" + "_".join(str(value) for value in asdict(self).values())

    def dict_items(self) -> Iterable[tuple[str, Any]]:
        return asdict(self).items()


OPERATIONS = [
    CKGemmOperation(),
    CKGemmOperation(k_per_block=64),
    CKGemmOperation(a_block_lds_extra_m=False),
]


def caller(operation: CKGemmOperation, number: int) -> ROCmTemplateCaller:
    """The real class; what compiles and runs it is not asked for."""
    request: Any = SimpleNamespace(hash_key=f"c{number}", source_file="")
    name, given = f"rocm_ck_gemm_template_{number}", {"op": operation, "kBatch": 1}
    none: Any = None
    return ROCmTemplateCaller(name, "ck_gemm_template", [], none, none, request, none, given)


def test_what_is_recorded_of_them() -> None:
    record = choice_record(caller(OPERATIONS[1], 1))
    assert provider(record) == "ck" and not is_own(record.hash)
    assert record.hash == "ck_gemm_template-c1"
    config = parse_config(record.description)
    assert config["K_PER_BLOCK"] == "64" and config["KBATCH"] == "1"
    assert config["GEMM_SPECIALIZATION"] == "MNKPadding"
    assert config["A_BLOCK_TRANSFER_THREAD_CLUSTER_LENGTHS_AK0_M_AK1"] == "(4, 16, 1)"


def test_which_one_a_graph_calls() -> None:
    template: Any = object.__new__(CKGemmTemplate)
    template.is_batched = False
    records = [choice_record(caller(operation, n)) for n, operation in enumerate(OPERATIONS)]
    rivals = tuple(str(record.hash) for record in records)
    assert len(set(rivals)) == len(OPERATIONS) > 1
    for called, operation in enumerate(OPERATIONS):
        source, _ = template.emit_ck_instance(operation)
        text = form(CALL.format(source=source) + GRAPH)
        for number, record in enumerate(records):
            config = parse_config(record.description)
            wanted = WantedChoice("mm", KEY, str(record.hash), rivals, config)
            expected = "same" if number == called else "other"
            assert judge(read_graph_text(text.encode()), wanted) == expected, (called, number)
        aten = WantedChoice("mm", KEY, "mm-c1", (*rivals, "mm-c1"))
        assert judge(read_graph_text(text.encode()), aten) == "other"
