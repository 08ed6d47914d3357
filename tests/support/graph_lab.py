"""Small texts of compiled graphs."""

from __future__ import annotations

A = "('cuda', 'torch.float16', 512, 256, 256, 1, 0)"

B = "('cuda', 'torch.float16', 256, 128, 128, 1, 0)"

KEY = f"[{A}, {B}]"

TRITON = '''
async_compile = AsyncCompile()
triton_tem_fused_mm_0 = async_compile.triton('triton_tem_fused_mm_0', """
@triton_heuristics.template(
    num_stages=2,
    num_warps=4,
)
@triton.jit
def triton_tem_fused_mm_0(arg_A, arg_B, out_ptr0):
    BLOCK_M : tl.constexpr = {block}
    BLOCK_N : tl.constexpr = 32
    ACC_TYPE : tl.constexpr = tl.float32
""", device_str='cuda')

def call(args):
    arg0_1, arg1_1 = args
    assert_size_stride(arg0_1, ({m}, 256), (256, 1))
    assert_size_stride(arg1_1, (256, 128), (128, 1))
    buf0 = empty_strided_cuda(({m}, 128), (128, 1), torch.float16)
    triton_tem_fused_mm_0.run(arg0_1, arg1_1, buf0, 8, 4, 1, stream=stream0)
    return (buf0, )
'''

GRAPH = """
class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f16[{m}, 256][256, 1]cuda:0", arg1_1: "f16[256, 128][128, 1]cuda:0"):
        mm: "f16[{m}, 128][128, 1]cuda:0" = torch.ops.aten.mm.default(arg0_1, arg1_1)
        return (mm,)
"""


def form(template: str, **values: object) -> str:
    values = {"m": 512, "block": 64, **values}
    for name, value in values.items():
        template = template.replace("{" + name + "}", str(value))
    return template
