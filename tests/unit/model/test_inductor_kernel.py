"""Keys of kernels that Inductor writes: the same for the same kernel, whatever its number is."""

from __future__ import annotations

import re

from backend.cache.configs import described
from backend.model.inductor_kernel import comparable_config, parse

SOURCE = """
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton.jit
def _triton_helper_fn_add0(arg0_0, arg1_0):
    return arg0_0 + arg1_0

@triton_heuristics.reduction(
    size_hints={'x': 4096, 'r0_': 1024},
    reduction_hint=ReductionHint.INNER,
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*bf16', 'in_ptr1': '*fp8e4nv', 'out_ptr1': '*fp32', \
'xnumel': 'i32', 'r0_numel': 'i32', 'XBLOCK': 'constexpr', 'R0_BLOCK': 'constexpr'}, \
'device': DeviceProperties(type='hip', index=0, multi_processor_count=304, cc='gfx942', major=9), \
'constants': {}, 'configs': [{(0,): [['tt.divisibility', 16]]}]},
    inductor_meta={'kernel_name': 'triton_red_fused_native_layer_norm_3', 'max_autotune': False}
)
@triton.jit
def triton_red_fused_native_layer_norm_3(in_ptr0, in_ptr1, out_ptr1, xnumel, r0_numel, \
XBLOCK : tl.constexpr, R0_BLOCK : tl.constexpr):
    xnumel = 4096
    r0_numel = 768
    rnumel = r0_numel

    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        pass


def get_args():
    return 1
"""


def test_a_kernel_is_told_by_its_text_its_sizes_and_its_device() -> None:
    kernel = parse(SOURCE)
    assert kernel is not None
    assert kernel.name == "triton_red_fused_native_layer_norm_3"
    assert kernel.op == "reduction"
    assert kernel.signature == ("*bf16", "*fp8e4nv", "*fp32", "i32", "i32")
    assert kernel.dtypes == ("torch.bfloat16", "torch.float8_e4m3fn", "torch.float32")
    assert (kernel.device, kernel.device_type) == ("hip:gfx942:304", "cuda")
    inputs, _, digest = kernel.inputs.rpartition(":")
    assert inputs == (
        'triton_red_fused_native_layer_norm[4096, 768, "torch.bfloat16", "torch.float8_e4m3fn", '
        '"torch.float32"]'
    )
    assert re.fullmatch("[A-Z2-7]{8}", digest)


def test_number_settings_and_what_stands_behind_do_not_count() -> None:
    kernel = parse(SOURCE)
    assert kernel is not None
    other = SOURCE.replace("layer_norm_3", "layer_norm_17").replace("return 1", "return 2")
    other = other.replace("'max_autotune': False", "'max_autotune': True")
    same = parse(other)
    assert same is not None and same.name.endswith("_17")
    assert same.inputs == kernel.inputs


def test_body_types_sizes_and_device_count() -> None:
    keys = [
        parse(SOURCE.replace(old, new))
        for old, new in (
            ("", ""),
            ("rnumel = r0_numel", "rnumel = 768"),
            ("*bf16", "*fp16"),
            ("'x': 4096", "'x': 8192"),
            ("gfx942", "gfx950"),
            ("multi_processor_count=304", "multi_processor_count=38"),
        )
    ]
    assert len({kernel.inputs for kernel in keys if kernel is not None}) == len(keys)


def test_other_files_are_none() -> None:
    assert parse("") is None
    assert parse("def call(args):\n    pass\n") is None
    assert parse("@triton_heuristics.pointwise(\n") is None


def test_a_signature_of_several_lines_is_the_functions() -> None:
    text = (
        "@triton_heuristics.user_autotune(\n    configs=[],\n)\n@triton.jit\n"
        "def scale_kernel_0(\n    x,  # (an odd comment\n    BLOCK: tl.constexpr,\n):\n    {}\n\n"
        "@triton.jit\ndef helper(y):\n    {}\n"
    )
    first, other = parse(text.format("x * 2", "y")), parse(text.format("x * 3", "y"))
    helped = parse(text.format("x * 2", "y + 1"))
    assert first is not None and other is not None and helped is not None
    assert (first.op, first.inputs[:14]) == ("user_autotune", "scale_kernel[]")
    assert first.inputs == helped.inputs != other.inputs


def test_configs_are_told_by_constants_warps_and_stages() -> None:
    hash_, name, text = described(comparable_config({"XBLOCK": 64, "R0_BLOCK": 8}, 4, 1))
    assert name == "R0_BLOCK=8 XBLOCK=64 w4 s1"
    assert text == "R0_BLOCK=8, XBLOCK=64, num_warps=4, num_stages=1"
    assert described(comparable_config({"R0_BLOCK": 8, "XBLOCK": 64}, 4, 1))[0] == hash_
