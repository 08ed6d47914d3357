"""What a trial tells of arms beside their times: kernels that changed, outputs that differ."""

from __future__ import annotations

import pytest
import torch

from backend.worker.trial.passes import OutputsDiffer, changed, kernels_of, output_difference

pytestmark = pytest.mark.torch

WRAPPER = '''
triton_poi_fused_gelu_0 = async_compile.triton('triton_poi_fused_gelu_0', """
import triton
def triton_poi_fused_gelu_0(in_ptr0):
    extern_kernels.mm(no, kernel, out=this)
""", device_str='cuda')
class Runner:
    def partition_0(self, args):
        triton_red_fused__softmax_7.run(buf2, 8, 1, stream=stream0)
    def call(self, args):
        arg0_1, arg1_1 = args
        assert_size_stride(arg0_1, (8, 8), (8, 1))
        buf0 = empty_strided_cuda((8, 8), (8, 1), torch.float16)
        # Topologically Sorted Source Nodes: [y], Original ATen: [aten.mm]
        extern_kernels.mm(arg0_1, arg1_1, out=buf0)
        stream0 = get_raw_stream(0)
        triton_poi_fused_gelu_0.run(buf0, 64, stream=stream0)
        triton_tem_fused_mm_1.run(buf0, buf1, 1, 1, 1, stream=stream0)
        triton_poi_fused_gelu_2.run(buf1, 64, stream=stream0)
        buf3 = torch.ops.aten._scaled_dot_product_flash_attention.default(buf1, buf1, buf1)
        return (buf3, )
runner = Runner(partitions=[])
def benchmark_compiled_module(times=10, repeat=10):
    extern_kernels.addmm(nobody, calls, this)
'''
CALLED = ("red fused softmax", "extern_kernels.mm", "poi fused gelu", "tem fused mm")
CALLED += ("poi fused gelu", "aten._scaled_dot_product_flash_attention")


def test_kernels_are_those_that_a_pass_calls() -> None:
    assert kernels_of(WRAPPER) == CALLED
    old = "def call(args):\n    cpp_fused_add_0(a, b)\n    aten.mm(a)\n    return (b, )\n"
    assert kernels_of(old) == ("cpp fused add",)
    assert kernels_of("") == ()


def test_what_changed_is_counted() -> None:
    first = ("mm", "gelu", "gelu", "add")
    assert changed(first, first) == ((), ())
    assert changed(first, ("mm gelu", "mm gelu", "add")) == (("mm", "gelu x2"), ("mm gelu x2",))


INF = float("inf")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_a_difference_is_over_the_largest_value(dtype: torch.dtype) -> None:
    a = torch.tensor([1.0, -4.0, 2.0]).to(dtype)
    assert output_difference([a, None, 3], [a.clone(), None, 3], 0.1).error == 0
    assert output_difference([a], [a + torch.tensor([0.0, 0.0, 0.5]).to(dtype)], 0.1).error == 0.125


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ([torch.ones(2)], []),
        ([torch.ones(2)], [torch.ones(3)]),
        ([torch.ones(2)], [torch.ones(2).double()]),
        ([torch.ones(2)], [None]),
        ([3], [4]),
        ([torch.tensor([1.0, INF])], [torch.tensor([INF, 1.0])]),
        ([torch.tensor([1.0, INF])], [torch.tensor([1.0, -INF])]),
        ([torch.tensor([1.0, INF])], [torch.tensor([1.0, float("nan")])]),
    ],
)
def test_another_kind_of_result_is_wrong(first: list[object], other: list[object]) -> None:
    with pytest.raises(OutputsDiffer, match="wrong result: "):
        output_difference(first, other, 1.0)


def test_infinities_at_the_same_places_are_no_difference() -> None:
    a = torch.tensor([1.0, INF, float("nan"), -INF])
    assert output_difference([a], [a.clone()], 0.0).error == 0
    assert output_difference([torch.zeros(2)], [torch.tensor([0.0, 1e-9])], 0.0).error == INF
