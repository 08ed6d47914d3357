"""A program with linear layers whose weights are frozen: fused with what follows, quantized, in few
bits."""

from __future__ import annotations

BEGIN = """
import torch.nn.functional as F
import torch.ao.quantization.fx._decomposed
config.freezing = True
torch.set_num_threads(1)
rand, bf16, i8, u8 = torch.randn, torch.bfloat16, torch.int8, torch.uint8
whole, per = torch.ops.quantized_decomposed, (0.02, 3, 0, 255, torch.uint8)

class Layer(torch.nn.Module):
    "What it is given by name are its weights."
    def __init__(self, function, **weights):
        super().__init__()
        for name, weight in weights.items():
            self.register_buffer(name, weight)
        self.function = function

    def forward(self, *inputs):
        return self.function(self, *inputs)

def go(function, *inputs, **weights):
    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(Layer(function, **weights).eval())(*inputs)

def quantized(m, x):
    "As a quantizer of torch's own writes it."
    x = whole.dequantize_per_tensor(whole.quantize_per_tensor(x, *per), *per)
    w = whole.dequantize_per_channel(m.w, m.s, m.z, 0, -128, 127, i8)
    return F.linear(x, w, m.b)

x, y, f = rand(32, 64).to(bf16), rand(32, 48).to(bf16), rand(32, 64)
linear = {"w": rand(48, 64).to(bf16), "b": rand(48).to(bf16)}
few = {"w": torch.randint(-128, 128, (48, 64), dtype=i8), "s": torch.rand(48) * 0.01 + 0.01}
scaled = {**few, "z": torch.zeros(48, dtype=torch.int64), "b": rand(48)}
four = torch.ops.aten._convert_weight_to_int4pack_for_cpu(
    torch.randint(0, 16, (64, 64), dtype=torch.int32), 1)
"""
ACTIVATIONS: dict[str, str] = {
    "relu": "F.relu",
    "gelu": "F.gelu",
    "gelu tanh": "lambda t: F.gelu(t, approximate='tanh')",
    "sigmoid": "torch.sigmoid",
    "tanh": "torch.tanh",
    "swish": "F.silu",
    "hardswish": "F.hardswish",
    "hardtanh": "lambda t: F.hardtanh(t, -0.5, 1)",
}
"""Library calls alone, so that no kernel has to be compiled for each."""
LIBRARY = "".join(
    f"go(lambda m, x, a={function}: a(F.linear(x, m.w, m.b)), x, **linear)\n"
    for function in ACTIVATIONS.values()
)
GPU = {
    "scaled_mm, blocks of one row": "times, blocks(256, 512), scales(4, 256).t(), scales(4, 256)",
    "scaled_mm, blocks of 128 rows": "times, blocks(256, 512), scales(4, 256).t(),"
    " scales(2, 4).t()",
    "scaled_mm, by recipe": "lambda a, b, s, t: F.scaled_mm(a, b, s, recipe.BlockWise1x128, t,"
    " recipe.BlockWise128x128, output_dtype=bf16), blocks(128, 512), scales(4, 128).t(),"
    " scales(1, 4).t()",
    "scaled_mm, MX": "times, blocks(256, 256), mx(2048), mx(2048)",
    "scaled_grouped_mm": "lambda a, b, s, t, e: torch._scaled_grouped_mm(a, b, s, t, e,"
    " out_dtype=bf16, use_fast_accum=True), (rand(64, 32).to(f8), rand(2, 48, 32).to(f8).mT),"
    " scales(64), scales(2, 48), torch.tensor([16, 64], dtype=torch.int32)",
}
"""What is tuned anywhere and runs on no CPU."""
LOWERED = f"""
f8, recipe = torch.float8_e4m3fn, F.ScalingType

def times(a, b, s, t):
    return torch._scaled_mm(a, b, s, t, out_dtype=torch.float16)

def scales(*sizes):
    return torch.rand(*sizes) + 0.5

def mx(size):
    return torch.ones(size).to(torch.float8_e8m0fnu)

def blocks(side, deep):
    return rand(side, deep).to(f8), rand(side, deep).to(f8).t()

def lower(function, factors, *inputs):
    try:
        go(lambda m, *inputs: function(*inputs), *factors, *inputs)
    except Exception as error:
        print(repr(error)[:200])

{chr(10).join(f"lower({what})" for what in GPU.values())}
"""
CPP = {
    "linear_unary, with an activation": "go(lambda m, x: F.leaky_relu(F.linear(x, m.w, m.b), 0.1),"
    " x, **linear)",
    "linear_binary": "go(lambda m, x, y: F.linear(x, m.w) - y, x, y, w=linear['w'])",
    "quantized linear": "go(lambda m, x: whole.dequantize_per_tensor(whole.quantize_per_tensor("
    "F.relu(quantized(m, x)), *per), *per), f, **scaled)",
    "quantized linear, with a sum": "go(lambda m, x, y: F.relu(quantized(m, x) + y), f,"
    " rand(32, 48), **scaled)",
    "int8 weights": "go(lambda m, x: torch.mm(x, m.w.t().to(bf16)) * m.s, x, w=few['w'],"
    " s=few['s'].to(bf16))",
    "int4 weights": "go(lambda m, x: torch.ops.aten._weight_int4pack_mm_for_cpu(x, m.w, 32, m.s),"
    " x, w=four, s=torch.rand(2, 64, 2).to(bf16))",
}
"""Each with a C++ choice beside the library's."""
PROGRAM = f"""{BEGIN}{LIBRARY}{LOWERED}config.max_autotune_gemm_backends = "ATEN,CPP"
{chr(10).join(CPP.values())}
"""
