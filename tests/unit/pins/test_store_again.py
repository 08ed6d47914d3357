"""A pin that is made again after it was taken back: what it had made goes with it again."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.pins.store import PinStore

KEY = TuningKey(
    "mm",
    "[('cpu', 'torch.float32', 4, 8, 8, 1, 0), ('cpu', 'torch.float32', 8, 2, 2, 1, 0)]",
    "highest",
)
ATEN, CPP = "mm-c1", "CppMicroGemm-c2"
WRAPPER = """
async_compile = AsyncCompile()
{kernel}
def call(args):
    assert_size_stride(arg0_1, (4, 8), (8, 1))
    assert_size_stride(arg1_1, (8, 2), (2, 1))
    buf0 = empty_strided_cpu((4, 2), (2, 1), torch.float32)
    {call}
    return (buf0, )

class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[4, 8][8, 1]cpu", arg1_1: "f32[8, 2][2, 1]cpu"):
        mm: "f32[4, 2][2, 1]cpu" = torch.ops.aten.mm.default(arg0_1, arg1_1)
        return (mm,)
"""
KERNEL = "cpp_0 = async_compile.cpp_pybinding([], 'kernel_micro_gemm')"
FASTEST = WRAPPER.format(kernel=KERNEL, call="cpp_0(arg0_1, arg1_1, buf0)")
PINNED = WRAPPER.format(kernel="", call="extern_kernels.mm(arg0_1, arg1_1, out=buf0)")


def compiled(layout: Layout, name: str, text: str) -> None:
    """As PyTorch keeps a graph, now."""
    path = layout.fxgraph / "ab" / "key" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    now = time.time()
    os.utime(path, (now, now))


def live(layout: Layout) -> set[str]:
    return {path.name for path in layout.fxgraph.rglob("*") if path.is_file()}


def test_unpin_takes_back_the_graph_of_a_pin_that_was_made_twice(tmp_path: Path) -> None:
    """Else stock PyTorch would find both graphs under one key, and take either."""
    layout = Layout(tmp_path)
    layout.autotune.mkdir(parents=True)
    cache = {KEY.op: {KEY.inputs: {KEY.precision: {ATEN: 2.0, CPP: 1.0}}}}
    (layout.autotune / "hash").write_text(json.dumps({"system": {}, "cache": cache}))
    compiled(layout, "fastest", FASTEST)
    store = PinStore(layout)
    store.pin(None, KEY, ATEN)
    assert live(layout) == set()
    compiled(layout, "pinned", PINNED)
    store.unpin(KEY)
    assert live(layout) == {"fastest"}
    for _ in range(2):
        store.pin(None, KEY, ATEN)
        assert live(layout) == {"pinned"}
        store.unpin(KEY)
        assert live(layout) == {"fastest"}
