"""A frozen weight is an attribute of the printed graph, and C++ kernels read it packed in blocks.

The texts were written by PyTorch 2.13 on a CPU with AVX2, for a bfloat16 `Linear(64, 96)` behind
`torch.topk`; only the body of the kernel is cut.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.pins.graphs.index import PACKAGE as PACKAGES
from backend.pins.graphs.index import GraphIndex, packages_below
from backend.pins.graphs.match import GraphUses, Verdict, WantedChoice, judge, may_hold
from backend.pins.graphs.text import read_graph_text

CPP = "CppMicroGemmFP32Vec-c26bqnvo53l6fm622hzy4qukrzj6dwreoxrrccqlf3w5rofkvbyj"
ATEN = "addmm-alpha=1-beta=1-c4xxd3iocu4yt6z4udrlqnumays7q6mfnfd3qprh4fxgsvyhqdkf"
KEY = (
    "[('cpu', 'torch.bfloat16', 32, 96, 0, 1, 0), ('cpu', 'torch.bfloat16', 32, 64, 64, 1, 0), "
    "('cpu', 'torch.bfloat16', 64, 96, 1, 64, 0)]"
)
WEIGHT = "64, 96, 1, 64, 0)]"

WRAPPER = """
async_compile = AsyncCompile()
_frozen_param1 = None  # device(type='cpu') torch.bfloat16 (96,) (1,) 7ff1199eeb70
_frozen_param2 = None  # device(type='cpu') torch.bfloat16 (64, 96) (1, 64) 7ff1172df8e0
constant2 = None  # device(type='cpu') torch.bfloat16 (4, 64, 24) (1536, 24, 1) 7ff11671be30
cpp_fused_addmm_0 = async_compile.cpp_pybinding(['const at::BFloat16*', 'at::BFloat16*'], r'''
inline void kernel_micro_gemm(
    constexpr int64_t num_threads = 1;
    constexpr int64_t N = 96;
    constexpr int64_t K = 64;
    constexpr int64_t Mr = 4;
    constexpr int64_t Nr = 24;
''')
class Runner:
    def call(self, args):
        assert_size_stride(arg2_1, (32, 96), (96, 1), 'input')
        buf0 = torch.ops.aten.topk.default(arg2_1, 64, 1, True, True)
        buf1 = buf0[0]
        assert_size_stride(buf1, (32, 64), (64, 1), 'torch.ops.aten.topk.default')
        buf3 = empty_strided_cpu((32, 96), (96, 1), torch.bfloat16)
        cpp_fused_addmm_0(buf1, constant2, _frozen_param1, buf3)
        return (buf3, )
def get_args():
    global _frozen_param1
    _frozen_param1 = rand_strided((96, ), (1, ), device='cpu', dtype=torch.bfloat16)
    global constant2
    constant2 = rand_strided((4, 64, 24), (1536, 24, 1), device='cpu', dtype=torch.bfloat16)
"""
GRAPH = """
class Repro(torch.nn.Module):
    def forward(self, arg2_1):
        arg1_1 = self._frozen_param1
        topk = torch.ops.aten.topk.default(arg2_1, 64, 1);  arg2_1 = None
        getitem = topk[0];  topk = None
        permute = self._frozen_param2
        addmm = torch.ops.aten.addmm.default(arg1_1, getitem, permute)
        return (addmm,)
class <lambda>(torch.nn.Module):
    def forward(self, arg2_1: "bf16[32, 96][96, 1]cpu"):
        # No stacktrace found for following nodes
        arg1_1: "bf16[96][1]cpu" = self._frozen_param1

        topk = torch.ops.aten.topk.default(arg2_1, 64, 1);  arg2_1 = None
        getitem: "bf16[32, 64][64, 1]cpu" = topk[0];  topk = None
        permute: "bf16[64, 96][1, 64]cpu" = self._frozen_param2
        addmm: "bf16[32, 96][96, 1]cpu" = torch.ops.aten.addmm.default(arg1_1, getitem, permute)
        return (addmm,)
"""
PACKAGE = """#include <torch/csrc/inductor/aoti_runtime/interface.h>
void AOTInductorModel::run_impl(
    auto arg2_1 = std::move(inputs[0]);
    assert_size_stride(arg2_1, {32L, 64L}, {64L, 1L}, "input");
    static constexpr int64_t int_array_0[] = {32L, 96L};
    static constexpr int64_t int_array_1[] = {96L, 1L};
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(2, int_array_0, int_array_1, \
cached_torch_dtype_bfloat16, cached_torch_device_type_cpu, this->device_idx_, &buf1_handle));
    cpp_fused_addmm_relu_0((const at::BFloat16*)(arg2_1.data_ptr()), \
(const at::BFloat16*)(constant2.data_ptr()), (at::BFloat16*)(buf1.data_ptr()));
inline void cpp_fused_addmm_relu_0_micro_gemm_kernel(
    constexpr int64_t num_threads = 1;
    constexpr int64_t N = 96;
    constexpr int64_t K = 64;
"""


def verdicts(text: str, inputs: str = KEY, op: str = "addmm") -> list[Verdict]:
    """The verdicts on the library call and on the C++ template."""
    data = text.encode()
    given: list[Verdict] = []
    rivals = (ATEN if op == "addmm" else f"{op}-c1", CPP)
    for choice in rivals:
        wanted = WantedChoice(op, inputs, choice, rivals)
        given.append(judge(read_graph_text(data), wanted))
        assert given[-1] == "absent" or may_hold(data, wanted)
    return given


@pytest.mark.parametrize("text", [WRAPPER + GRAPH, PACKAGE], ids=["entry", "package"])
def test_the_template_that_reads_a_packed_weight_is_found(text: str) -> None:
    assert verdicts(text) == ["other", "same"]
    assert verdicts(text, KEY.replace(WEIGHT, "64, 48, 1, 64, 0)]")) == ["absent", "absent"]
    assert verdicts(text, KEY.replace("32, 64, 64, 1", "16, 64, 64, 1")) == ["absent", "absent"]
    assert verdicts(text, KEY, "bmm") == ["absent", "absent"]


def test_a_package_whose_tensors_cannot_be_read_may_hold_what_its_kernels_are_called_after(
    tmp_path: Path,
) -> None:
    """As one of a later PyTorch, which writes checks and buffers in another way."""
    path = tmp_path / ("c" * 52) / f"m{PACKAGES}"
    path.parent.mkdir()
    path.write_text(PACKAGE.replace("assert_size", "check_size").replace("empty_str", "new_str"))
    (entry,) = packages_below(tmp_path)
    index = GraphIndex(Layout(tmp_path))
    addmm = WantedChoice("addmm", KEY, CPP, (ATEN, CPP))
    mm = WantedChoice("mm", KEY, CPP, ("mm-c1", CPP))
    assert [index.verdicts([entry], wanted) for wanted in (addmm, mm)] == [["unclear"], ["absent"]]


def with_buffer(sizes: str) -> str:
    """The wrapper with one more buffer, in the layout of which a result may be."""
    buffer = f"        buf4 = empty_strided_cpu({sizes}, torch.bfloat16)\n        return"
    return WRAPPER.replace("        return", buffer)


def test_a_frozen_weight_has_the_strides_that_are_printed() -> None:
    text = with_buffer("(64, 96), (96, 1)") + GRAPH
    assert verdicts(text) == ["other", "same"]
    assert verdicts(text, KEY.replace(WEIGHT, "64, 96, 96, 1, 0)]")) == ["absent", "absent"]


def test_an_item_of_a_result_may_get_the_strides_of_a_buffer() -> None:
    moved = GRAPH.replace("bf16[32, 64][64, 1]", "bf16[32, 64][1, 32]")
    assert verdicts(WRAPPER + moved) == ["absent", "absent"]
    assert verdicts(with_buffer("(32, 64), (64, 1)") + moved) == ["other", "same"]


@pytest.mark.parametrize("value", ["permute", "getitem", "arg1_1"])
def test_a_value_without_its_sizes_leaves_the_verdict_open(value: str) -> None:
    head, _, tail = GRAPH.partition(f"{value}: ")
    text = WRAPPER + head + value + tail[tail.index(" = ") :]
    assert verdicts(text) == ["unclear", "unclear"]
    other = KEY.replace("torch.bfloat16", "torch.float16")
    assert verdicts(text, other) == ["absent", "absent"]
    assert verdicts(text, KEY, "mm") == ["absent", "absent"]
    doubled = KEY.replace("[(", "[('cpu', 'torch.bfloat16', 32, 96, 0, 1, 0), (")
    assert verdicts(text, doubled) == ["absent", "absent"], "two operands are missing, one is open"


def test_a_result_without_its_sizes_leaves_the_verdict_open() -> None:
    item = 'getitem: "bf16[32, 64][64, 1]cpu" = topk[0]'
    text = WRAPPER + GRAPH.replace(item, "getitem = torch.ops.aten.clone.default(topk)")
    assert verdicts(text) == ["unclear", "unclear"]


def test_a_profiled_kernel_is_found_by_its_frozen_weight() -> None:
    uses = GraphUses(read_graph_text((WRAPPER + GRAPH).encode()))
    held = uses.held("addmm", KEY)
    assert held is not None and held.count == 1
    wanted = [WantedChoice("addmm", KEY, choice, (ATEN, CPP)) for choice in (ATEN, CPP)]
    assert uses.chosen(held, wanted).hash == CPP
