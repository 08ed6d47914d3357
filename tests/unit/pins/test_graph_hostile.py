"""Whatever stands in an entry, reading it takes no longer than a second for a million bytes."""

from __future__ import annotations

import time

import pytest

from backend.pins.graphs.match import Wanted, judge, may_hold
from backend.pins.graphs.text import read_graph_text

PYTHON = "AsyncCompile()\n  def call(args):\n"
CPP = "cpp_wrapper_src = (\ninductor_entry_impl(\n"
PRINTED = PYTHON + "class a(torch.nn.Module):\n    def forward(self, "
NODE = PYTHON + "class a(torch.nn.Module):\n    b = torch.ops.aten.mm("
KEY = "[('cuda', 'torch.float16', 512, 256, 256, 1, 0), ('cuda', 'torch.float16', 8, 4, 4, 1, 0)]"

BITS = """a|(|[|"| |,|0|{|%|:|\\t|\\n |a: "|a = |extern_kernels.mm(|a: "f32[
class x(torch.nn.Module):\\n|class x(
# Graph fragment:\\n|#   %a : x|    A : tl.constexpr = |\\nx = async_compile.triton('triton_tem
a = reinterpret_tensor(|assert_size_stride(a, (|a = rand_strided((|a = empty_strided_cpu((
aoti_torch_cpu_|reinterpret_tensor_wrapper(a, 1, b, c, |auto a = |int64_t a[] = {|def triton_tem_a(
cpp_a_micro_gemm |reader.symint(1)  # a|\\ndef load_args(reader):\\n|\\n return |def call(|cpp_a
AsyncCompile()\\n|cpp_wrapper_src = (\\n|constexpr int64_t M|# rocm-tui choice a for b """
UNITS = BITS.replace("\n", "|").replace("\\n", "\n").replace("\\t", "\t").split("|")
NUMBERED = [
    "cpp_a{n}_micro_gemm ",
    "def triton_tem_{n}(",
    '    n{n}: "f32[4][1]cpu" = torch.ops.aten.mm.default(n{n}, n1)\n',
    "        assert_size_stride(a{n}, (1,), (1,))\n        extern_kernels.mm(a1, a{n})\n",
]
SIZE = 300_000
SECONDS = 1.0
"""For less than a third of the megabyte: this machine may be three times as slow."""


@pytest.mark.parametrize("start", [PYTHON, CPP, PRINTED, NODE], ids=["py", "cpp", "graph", "node"])
def test_one_thing_again_and_again(start: str) -> None:
    for unit in UNITS:
        assert seconds(start + unit * (SIZE // len(unit))) < SECONDS, unit


@pytest.mark.parametrize("line", NUMBERED)
def test_each_time_another_name(line: str) -> None:
    for start in (PYTHON, CPP, NODE + ")\n"):
        text = "".join(line.replace("{n}", str(n)) for n in range(SIZE // (len(line) + 4)))
        assert seconds(start + text) < SECONDS, line


def seconds(text: str) -> float:
    data = text.encode()
    begin = time.process_time()
    graph = read_graph_text(data)
    for op in ("mm", "flex_attention", "another"):
        wanted = Wanted(op, KEY, "triton_mm-c1", ("triton_mm-c2",))
        may_hold(data, wanted)
        judge(graph, wanted)
    return time.process_time() - begin
