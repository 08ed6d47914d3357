"""What the text of a compiled graph says; small samples of forms that no CPU build writes."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.model.origin import kind_of
from backend.model.problem import TensorSpec
from backend.pins.graphs.match import (
    GraphUses,
    Verdict,
    WantedChoice,
    form_of,
    judge,
    may_hold,
)
from backend.pins.graphs.parts import ChoiceSources, kernel_config
from backend.pins.graphs.text import python_hints, read_graph_text
from tests.support.graph_lab import GRAPH, KEY, TRITON, A, B, form

EXTERN = """
async_compile = AsyncCompile()
def call(args):
    s0 = args[0]
    assert_size_stride(arg0_1, ({m}, 256), (256, 1))
    assert_size_stride(arg1_1, (256, 128), (128, 1))
    buf0 = empty_strided_cuda(({m}, 128), (128, 1), torch.float16)
    {call}
    return (buf0, )
"""

RIVALS = ("mm-c1", "bias_addmm-c9", "triton_mm-c2", "triton_mm-c3")


def verdict(text: str, choice: str, config: dict[str, str] | None = None) -> Verdict:
    wanted = WantedChoice("mm", KEY, choice, RIVALS, config or {})
    data = text.encode()
    found = judge(read_graph_text(data), wanted)
    assert found == "absent" or may_hold(data, wanted)
    return found


@pytest.mark.parametrize("graph", [GRAPH, ""], ids=["typed", "untyped"])
def test_triton_templates_are_told_apart_by_their_config(graph: str) -> None:
    text = form(TRITON + graph)
    assert verdict(text, "mm-c1") == "other"
    assert verdict(text, "triton_mm-c2") == "unknown"
    config = {"BLOCK_M": "64", "num_warps": "4", "ACC_TYPE": "'tl.float32'"}
    assert verdict(text, "triton_mm-c2", config) == "same"
    assert verdict(text, "triton_mm-c2", {**config, "num_stages": "3"}) == "other"
    assert verdict(text, "triton_mm-c2", {**config, "BLOCK_M": "128"}) == "other"
    assert verdict(text, "triton_mm-c2", {"EVEN_K": "True"}) == "unknown"
    assert verdict(text, "CppMicroGemm-c4") == "other"
    assert judge(read_graph_text(text.encode()), WantedChoice("bmm", KEY, "bmm-c1")) == "absent"
    assert verdict(form(TRITON + graph, m=511), "mm-c1") == "absent"


@pytest.mark.parametrize("theirs", [64, 128])
def test_a_kernel_that_is_launched_with_other_tensors_is_not_meant(theirs: int) -> None:
    """Nothing but what it is given tells which product a kernel without a comment computes."""
    ours = 192 - theirs
    kernel, _, body = form(TRITON, block=ours).partition("\ndef call")
    other = form(TRITON, block=theirs).partition("\ndef call")[0].partition("()\n")[2]
    kernels = kernel + other.replace("mm_0", "mm_1")
    made = [f"assert_size_stride({name}, (64, 64), (64, 1))" for name in ("arg2_1", "arg3_1")]
    made.append("buf1 = empty_strided_cuda((64, 64), (64, 1), torch.float16)")
    made.append("triton_tem_fused_mm_1.run(arg2_1, arg3_1, buf1, 2, 2, 1, stream=stream0)")
    lines = "".join(f"    {line}\n" for line in made)
    text = kernels + "\ndef call" + body.replace("    return", f"{lines}    return")
    assert verdict(text, "triton_mm-c2", {"BLOCK_M": str(ours)}) == "same"
    assert verdict(text, "triton_mm-c2", {"BLOCK_M": str(theirs)}) == "other"


def test_extern_calls_their_views_and_other_externs() -> None:
    text = form(EXTERN, call="extern_kernels.mm(arg0_1, arg1_1, out=buf0)")
    assert verdict(text, "mm-c1") == "same" and verdict(text, "triton_mm-c2") == "other"
    view = "reinterpret_tensor(arg1_1, (256, 128), (1, 256), 0)"
    text = form(EXTERN, call=f"extern_kernels.mm(arg0_1, {view}, out=buf0)")
    assert verdict(text, "mm-c1") == "absent"
    transposed = f"[{A}, {B.replace('128, 128, 1', '128, 1, 256')}]"
    assert judge(read_graph_text(text.encode()), WantedChoice("mm", transposed, "mm-c1")) == "same"
    text = form(EXTERN, call="extern_kernels.bias_addmm(arg0_1, arg1_1, alpha=1, out=buf0)")
    assert verdict(text, "mm-c1") == "other" and verdict(text, "bias_addmm-c9") == "same"
    text = form(EXTERN, call="buf0 = torch.ops.aten.mm.default(arg0_1, arg1_1)")
    assert verdict(text, "mm-c1") == "same"


def test_a_symbolic_size_stands_for_every_size() -> None:
    text = form(TRITON + GRAPH, m="s77")
    assert verdict(text, "mm-c1") == "other"
    text = form(EXTERN, m="s77", call="extern_kernels.mm(arg0_1, arg1_1, out=buf0)")
    assert verdict(text, "mm-c1") == "same"


def test_a_view_of_what_is_computed_may_get_another_layout() -> None:
    """Inductor decides it after the graph was printed; an input keeps its own."""
    turned = f"[{A.replace('256, 1, 0', '1, 512, 0')}, {B}]"
    node = '        {0}: "f16[512, 256][256, 1]cuda:0" = torch.ops.aten.{0}.default({1})\n'
    nodes = node.format("relu", "arg0_1") + node.format("view", "relu, [512, 256]") + "        mm:"
    graph = GRAPH.replace("        mm:", nodes).replace("mm.default(arg0_1", "mm.default(view")
    text = TRITON.replace(
        "    buf0 =",
        "    buf1 = empty_strided_cuda((512, 256), (1, 512), torch.float16)\n    buf0 =",
    )
    wanted = WantedChoice("mm", turned, "mm-c1", RIVALS)
    assert judge(read_graph_text(form(text + graph).encode()), wanted) == "other"
    of_input = graph.replace("view.default(relu", "view.default(arg0_1")
    assert judge(read_graph_text(form(text + of_input).encode()), wanted) == "absent"


def test_a_product_that_was_a_convolution_is_not_ruled_out_by_its_sizes() -> None:
    """Its operands are views, whose sizes no text has to name."""
    wanted = WantedChoice("mm", KEY, "mm-c1", RIVALS)
    assert not may_hold(b"extern_kernels.mm(arg0_1, arg1_1, out=buf0)", wanted)
    assert may_hold(b"triton_tem_fused_convolution_mm_0.run(arg0_1, arg1_1, buf0)", wanted)


def test_what_was_compiled_without_autotuning_is_nobodys() -> None:
    text = form(EXTERN, call="extern_kernels.mm(arg0_1, arg1_1, out=buf0)")
    said = "[abc] inductor_config[max_autotune]: {}\n[def] inductor_config[max_autotune_gemm]: {}\n"
    assert verdict(text + said.format(False, False), "triton_mm-c2") == "absent"
    assert verdict(text + said.format(False, True), "triton_mm-c2") == "other"
    assert verdict(text + said.format(True, False), "triton_mm-c2") == "other"


def test_an_expanded_bias() -> None:
    key = f"[('cuda', 'torch.float16', 512, 128, 0, 1, 0), {A}, {B}]"
    text = form(EXTERN, call="extern_kernels.addmm(arg2_1, arg0_1, arg1_1, alpha=1, out=buf0)")
    for bias, expected in (("(128, ), (1, )", "same"), ("(512, ), (1, )", "absent")):
        full = text.replace("s0 = args[0]", f"assert_size_stride(arg2_1, {bias})")
        found = judge(read_graph_text(full.encode()), WantedChoice("addmm", key, "addmm-c1"))
        assert found == expected


def test_kinds() -> None:
    kinds = {
        "bmm-cd5psz": "",
        "_mkl_linear-B=None-batch_size=64-ckf3": "",
        "addmm-alpha=1-beta=1-c1": "",
        "CppMicroGemmFP32Vec-coyaf": "cpp",
        "packed_gemm-cjo7": "cpp",
        "triton_bmm-c77": "triton",
    }
    assert {name: kind_of(name) for name in kinds} == kinds


@given(st.binary(max_size=400))
def test_any_bytes_say_something_or_nothing(data: bytes) -> None:
    graph = read_graph_text(b"AsyncCompile()\n  def call(args):\n" + data)
    assert graph.is_compiled
    assert judge(graph, WantedChoice("mm", KEY, "mm-c1")) == "absent"
    assert not read_graph_text(data).externs


def test_a_symbol_has_the_value_for_which_the_benchmark_makes_its_input() -> None:
    made = "arg0_1 = rand_strided((512, 256), (256, 1), device='cuda:0', dtype=torch.float16)\n"
    text = form(EXTERN, m="s77", call="extern_kernels.mm(arg0_1, arg1_1, out=buf0)")
    assert python_hints(text + made) == {"s77": 512}
    assert python_hints(text + made.replace("arg0_1", "arg7_1")) == {}
    assert python_hints(text) == {}


def test_a_cpp_wrapper_tells_the_configs_of_its_triton_kernels() -> None:
    """The source of each kernel stands there as a comment."""
    kernel = TRITON.partition("triton_tem_fused_mm_0 = ")[2].partition("\ndef call")[0]
    text = f"#include <torch.h>\n{form(kernel)}{form(kernel, block=128).replace('_0', '_1')}"
    text += "\nvoid inductor_entry_impl() {}\n"
    graph = read_graph_text(text.encode())
    assert graph.is_compiled
    entry = f"cpp_wrapper_src = (\n{text})\ninductor_entry = CppWrapperCodeCache.load_pybinding()\n"
    backward = entry.replace("mm_0", "mm_2").replace("mm_1", "mm_3")
    names = [
        kernel.name[-4:] for kernel in read_graph_text(f"{entry}{backward}".encode()).templates
    ]
    assert names == ["mm_0", "mm_1", "mm_2", "mm_3"]
    first, second = graph.templates
    assert (first.name, dict(first.config)["BLOCK_M"]) == ("triton_tem_fused_mm_0", "64")
    assert (second.name, dict(second.config)["BLOCK_M"]) == ("triton_tem_fused_mm_1", "128")
    assert dict(first.config)["num_stages"] == "2"


@pytest.mark.parametrize(
    ("op", "read"),
    [
        ("mm", [0, 1, 2, 3, 4]),
        ("flex_attention", [0, 1, 2, 4]),
        ("flex_decoding", [1, 2, 4]),
        ("_weight_int4pack_mm_for_cpu", [0, 1, 3]),
    ],
)
def test_the_inputs_of_a_key_that_a_call_has(op: str, read: list[int]) -> None:
    """Index tensors are among those of flex attention, and its scratch outputs are not."""
    dtypes = [*["torch.float16"] * 4, "torch.int32"]
    specs = [TensorSpec("cpu", dtype, (at,), (1,), 0) for at, dtype in enumerate(dtypes)]
    assert [spec.sizes[0] for spec in form_of(op).read(specs)] == read


@pytest.mark.parametrize("m", [512, "s77"])
def test_a_key_without_inputs_is_held_by_no_graph(m: object) -> None:
    text = form(EXTERN, m=m, call="extern_kernels.mm(arg0_1, arg1_1, out=buf0)")
    uses = GraphUses(read_graph_text(text.encode()))
    assert uses.held("mm", "[]") is None and uses.held("mm", KEY) is not None


def test_a_choice_of_cpp_is_known_by_the_digest_of_its_source(tmp_path: Path) -> None:
    source = "// größer\nconstexpr int64_t Mt_blocks = 4;\n"
    digest = hashlib.sha256(source.encode()).digest()
    key = "c" + base64.b32encode(digest)[:51].decode().lower()
    (tmp_path / "ab").mkdir()
    (tmp_path / "ab" / "cabc.cpp").write_text(source)
    constants = ChoiceSources(tmp_path).constants(f"CppTemplateCaller-{key}", "cpp")
    assert constants == dict(kernel_config(source, "cpp")) != {}
