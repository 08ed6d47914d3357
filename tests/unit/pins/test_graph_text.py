"""What the text of a compiled graph says; small samples of forms that no CPU build writes."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.model.origin import kind_of
from backend.model.problem import TensorSpec
from backend.pins.graphs import parts
from backend.pins.graphs.match import (
    GraphUses,
    Verdict,
    WantedChoice,
    form_of,
    judge,
    may_hold,
)
from backend.pins.graphs.parts import ChoiceSources, GraphTensor, kernel_config
from backend.pins.graphs.text import (
    GraphText,
    OwnChoice,
    printed_hints,
    python_hints,
    read_graph_text,
)
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


FLYDSL = """
async_compile = AsyncCompile()
flydsl_fused_mm_1a2b3c4d = async_compile.flydsl('flydsl_fused_mm_1a2b3c4d', r'''
import flydsl.expr as fx
TILE_M: fx.Constexpr = {block}
IS_MXFP: fx.Constexpr = False
''', precompile_metadata={'device_index': 0})

def call(args):
    arg0_1, arg1_1 = args
    assert_size_stride(arg0_1, ({m}, 256), (256, 1))
    assert_size_stride(arg1_1, (256, 128), (128, 1))
    buf0 = empty_strided_cuda(({m}, 128), (128, 1), torch.float16)
    flydsl_fused_mm_1a2b3c4d.run(arg0_1, arg1_1, buf0, stream=stream0)
    return (buf0, )
"""


@pytest.mark.parametrize("graph", [GRAPH, ""], ids=["typed", "untyped"])
def test_flydsl_templates_differ_by_their_config(graph: str) -> None:
    """The form is that of PyTorch's flydsl_scheduling.py; no AMD GPU wrote it."""
    rivals = ("mm-c1", "triton_mm-c2", "flydsl_mm_flydsl-c3", "flydsl_mm_flydsl-c4")
    text = read_graph_text(form(FLYDSL + graph).encode())

    def of(choice: str, **config: str) -> Verdict:
        return judge(text, WantedChoice("mm", KEY, choice, rivals, config))

    assert of("mm-c1") == of("triton_mm-c2", BLOCK_M="64") == "other"
    assert of("flydsl_mm_flydsl-c3") == "unknown"
    assert of("flydsl_mm_flydsl-c3", TILE_M="64", IS_MXFP="False") == "same"
    assert of("flydsl_mm_flydsl-c4", TILE_M="128", IS_MXFP="False") == "other"


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


@pytest.mark.parametrize("name", ["addmm", "bias_addmm"])
def test_an_expanded_bias(name: str) -> None:
    key = f"[('cuda', 'torch.float16', 512, 128, 0, 1, 0), {A}, {B}]"
    text = form(EXTERN, call=f"extern_kernels.{name}(arg2_1, arg0_1, arg1_1, alpha=1, out=buf0)")
    for bias, expected in (("(128, ), (1, )", "same"), ("(512, ), (1, )", "absent")):
        full = text.replace("s0 = args[0]", f"assert_size_stride(arg2_1, {bias})")
        found, without_rivals = (
            judge(read_graph_text(full.encode()), WantedChoice("addmm", key, choice))
            for choice in (f"{name}-c1", "triton_addmm-c2")
        )
        assert found == expected
        assert without_rivals == ("other" if expected == "same" else "absent")


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


HALF = "torch.float16"
A_TENSOR = GraphTensor((512, 256), (256, 1), HALF, "cuda")
B_TENSOR = GraphTensor((256, 128), (128, 1), HALF, "cuda")


def wrapped(*lines: str) -> GraphText:
    """What a Python wrapper with these lines says, whose two inputs are typed."""
    graph = form(GRAPH).replace("mm: ", "no: ").replace("aten.mm.", "aten.no.")
    checks = (
        "assert_size_stride(arg0_1, (512, 256), (256, 1))",
        "assert_size_stride(arg1_1, (256, 128), (128, 1))",
    )
    body = "".join(f"    {line}\n" for line in (*checks, *lines))
    return read_graph_text(f"AsyncCompile()\ndef call(args):\n{body}{graph}".encode())


@pytest.mark.parametrize(
    ("lines", "operands"),
    [
        (["extern_kernels.x(arg0_1, arg1_1)"], (A_TENSOR, B_TENSOR)),
        (["buf0 = aten.x.default(arg0_1, alpha=arg1_1)"], (A_TENSOR,)),
        (["torch.ops.quantized.x(arg9_1, None, arg1_1)   "], (B_TENSOR,)),
        (["buf1 = arg1_1; del arg1_1", "mkldnn.x(buf1)"], (B_TENSOR,)),
        (
            ["buf1 = reinterpret_tensor(arg0_1, (256, 512), (1, 256), 0); del x", "mkl.x(buf1)"],
            (GraphTensor((256, 512), (1, 256), HALF, "cuda"),),
        ),
        (
            ["aten.x(reinterpret_tensor(arg9_1, (4, ), (1, ), 0), arg0_1)"],
            (GraphTensor((4,), (1,)), A_TENSOR),
        ),
        (
            ["buf1 = empty_strided_cpu((4, 2), (2, 1), torch.int8)", "aten.x(buf1)"],
            (GraphTensor((4, 2), (2, 1), "torch.int8", "cpu", True),),
        ),
        (
            ["buf1 = empty_strided((4, 2), (2, 1), dtype=torch.int8)", "aten.x(buf1)"],
            (GraphTensor((4, 2), (2, 1), "torch.int8", None, True),),
        ),
    ],
)
def test_the_operands_of_a_library_call(
    lines: list[str], operands: tuple[GraphTensor, ...]
) -> None:
    (call,) = wrapped(*lines).externs
    assert (call.name, call.operands) == ("x", operands)
    assert wrapped(*lines).tensors >= {*operands, A_TENSOR, B_TENSOR}


@pytest.mark.parametrize("line", ["aten.x(arg0_1) + 1", "other.x(arg0_1)", "x" * 100_001])
def test_other_lines_are_no_library_calls(line: str) -> None:
    assert wrapped(line, f"aten.x(arg0_1){'  '}").externs[0].name == "x"
    assert len(wrapped(line, "aten.x(arg0_1)").externs) == 1
    assert wrapped(f"aten.x({'arg0_1, ' * 20_000})").externs == (), "that is data"


def test_an_input_that_the_benchmark_makes_has_its_dtype_and_device() -> None:
    text = form(EXTERN, call="extern_kernels.mm(arg0_1, arg1_1, out=buf0)") + (
        "def benchmark():\n"
        "    arg0_1 = rand_strided((512, 256), (256, 1), device='cuda:0', dtype=torch.float16)\n"
    )
    (call,) = read_graph_text(text.encode()).externs
    assert call.operands == (A_TENSOR, GraphTensor((256, 128), (128, 1)))


@pytest.mark.parametrize(
    ("value", "hints"),
    [("512", {"s7": 512}), ("9" * 19, {"s7": int("9" * 19)}), ("9" * 20, {}), ("s8", {})],
)
def test_the_value_of_a_symbol(value: str, hints: dict[str, int]) -> None:
    check = "assert_size_stride(arg0_1, (s7, 256), (256, 1))\n"
    made = f"arg0_1 = rand_strided(({value}, 256), (256, 1), device='cpu', dtype=torch.int8)\n"
    assert python_hints(check + made) == hints


def test_the_values_that_a_reproducer_prints() -> None:
    reader = "reader.symint({}, expr='{}')  # arg{}_1\n"
    text = reader.format(512, "s7", 0) + reader.format(8, "s9", 1) + "reader.symint(4)  # arg2_1\n"
    assert printed_hints(text) == {"s7": 512, "s9": 8}
    assert printed_hints(text + "s3 = arg2_1\ns7 = arg2_1\ns4 = arg5_1\n") == {
        "s7": 512, "s9": 8, "s3": 4,
    }  # fmt: skip
    assert printed_hints("s3 = arg2_1\n") == {}


def test_sizes_that_were_open_are_those_for_which_it_was_tuned() -> None:
    entry = form(EXTERN, m="s77", call="extern_kernels.mm(arg0_1, arg1_1, out=buf0)")
    entry += "def load_args(reader):\n    reader.symint(512, expr='s77')  # arg2_1\n"
    graph = read_graph_text(entry.encode())
    assert graph.externs[0].operands[0].sizes == (512, 256)
    assert graph.any_size is not None
    assert graph.any_size.externs[0].operands[0].sizes == (None, 256)
    for inputs, found in ((KEY, "same"), (KEY.replace("512, 256", "64, 256"), "unclear")):
        wanted = WantedChoice("mm", inputs, "mm-c1", ("mm-c1",))
        assert judge(graph, wanted) == ("same" if found == "same" else "absent")
        triton = WantedChoice("mm", inputs, "triton_mm-c2", ("mm-c1",))
        assert judge(graph, triton) == ("other" if found == "same" else found)


CPP = """#include <torch.h>
void inductor_entry_impl() {{
    assert_size_stride(arg0_1, {{512L, 256L}}, {{256L, 1L}}, "input");
    auto arg1_1 = std::move(inputs[1]);
    assert_size_stride(arg1_1, {{256L, 128L}}, {{128L, 1L}}, "input");
    static constexpr int64_t int_array_0[] = {{512L, 128L}};
    static constexpr int64_t int_array_1[] = {{128L, 1L}};
    aoti_torch_empty_strided(2, int_array_0, int_array_1, cached_torch_dtype_float16, \
cached_torch_device_type_cuda, 0, &buf0_handle));
    RAIIAtenTensorHandle buf0(buf0_handle);
    {line}
}}
"""
UNTYPED = {each: replace(each, dtype=None, device=None) for each in (A_TENSOR, B_TENSOR)}
MADE = GraphTensor((512, 128), (128, 1), HALF, "cuda", True)


@pytest.mark.parametrize(
    ("line", "name", "operands"),
    [
        ("aoti_torch_cuda_mm_out(buf0, arg0_1, arg1_1);", "mm", [A_TENSOR, B_TENSOR]),
        ("aoti_torch_cpu_mkldnn__linear_pointwise(arg0_1, &x);", "_linear_pointwise", [A_TENSOR]),
        ("aoti_torch_cpu__linear_pointwise_binary(arg0_1);", "_linear_pointwise", [A_TENSOR]),
        (
            "aoti_torch_cpu__weight_int4pack_mm_cpu_tensor(arg0_1);",
            "int4mm_packed_weight_cpu",
            [A_TENSOR],
        ),
        ('custom_op_wrapper("torch.ops.aten.topk", arg1_1, 64);', "topk", [B_TENSOR]),
        ('custom_op_wrapper("aten::topk", 64, arg1_1);', "topk", [B_TENSOR]),
        (
            "aoti_torch_cuda_x(reinterpret_tensor_wrapper(buf0, 2, int_array_1, int_array_0, 0));",
            "x",
            [GraphTensor((128, 1), (512, 128), HALF, "cuda")],
        ),
        ("aoti_torch_cuda_x(arg9_1, int_array_0, buf0);", "x", [MADE]),
    ],
)
def test_the_calls_of_a_cpp_wrapper(line: str, name: str, operands: list[GraphTensor]) -> None:
    graph = read_graph_text(CPP.format(line=line).encode())
    *_, call = graph.externs  # behind that for the buffer
    assert call.name == name
    assert list(call.operands) == [UNTYPED.get(each, each) for each in operands]


@pytest.mark.parametrize("array", ["int_array_0", "int_array_1"])
def test_a_buffer_in_cpp_whose_sizes_or_strides_are_missing_is_no_tensor(array: str) -> None:
    text = CPP.format(line="aoti_torch_cuda_x(arg0_1, buf0);").replace(f" {array}[]", " other[]")
    assert read_graph_text(text.encode()).externs[-1].operands == (UNTYPED[A_TENSOR],)


@pytest.mark.parametrize(
    "alias",
    [
        "auto buf7 = std::move(arg0_1);",
        "RAIIAtenTensorHandle buf7 = std::move(arg0_1);",
        "auto buf7 = reinterpret_tensor_wrapper(arg0_1, 2, int_array_0, int_array_1, 0);",
    ],
)
def test_another_name_of_a_tensor_in_a_cpp_wrapper(alias: str) -> None:
    graph = read_graph_text(CPP.format(line=f"{alias}\n    aoti_torch_cuda_x(buf7);").encode())
    sizes = ((512, 128), (128, 1)) if "reinterpret" in alias else ((512, 256), (256, 1))
    assert graph.externs[-1].operands == (GraphTensor(*sizes),)


def test_text_that_no_wrapper_is_has_no_code() -> None:
    for text in ("#include <torch.h>\nvoid other() {}", "def call(args): pass", "AsyncCompile()\n"):
        assert not read_graph_text(text.encode()).is_compiled
    assert read_graph_text(CPP.format(line="").encode()).is_compiled
    entry = f"cpp_wrapper_src = (\n{CPP.format(line='')})\nCppWrapperCodeCache.load_pybinding()\n"
    later = entry + "aoti_torch_cuda_x(arg0_1);"
    names = [call.name for call in read_graph_text(later.encode()).externs]
    assert "x" not in names, "that is behind the module"
    assert not read_graph_text(entry.replace("inductor_entry_impl", "f").encode()).is_compiled


@pytest.mark.parametrize(
    ("head", "body", "kind"),
    [
        ("triton_tem_fused_mm_0 = async_compile.triton(", "", "triton"),
        ("triton_poi_fused_add_0 = async_compile.triton(", "", None),
        ("cpp_fused_mm_0 = async_compile.cpp_pybinding(", "kernel_micro_gemm", "cpp"),
        ("cpp_fused_bmm_0 = async_compile.cpp_pybinding(", "_mm(X, W, Y", "cpp"),
        ("cpp_fused_add_0 = async_compile.cpp_pybinding(", "", None),
        *((f"fused_mm_0 = async_compile.{kind}(", "", kind)
          for kind in ("cuda", "rocm", "cutlass", "ck", "cutedsl", "nv_universal_gemm")),
        ("fused_mm_0 = async_compile.pallas(", "", None),
    ],
)  # fmt: skip
def test_which_kernels_are_templates(head: str, body: str, kind: str | None) -> None:
    name = head.partition(" ")[0]
    text = f"AsyncCompile()\n{head}'x', '''{body}''')\ndef call(args):\n    {name}.run(arg0_1)\n"
    kernels = read_graph_text(text.encode()).templates
    assert [(kernel.name, kernel.kind) for kernel in kernels] == ([(name, kind)] if kind else [])


@pytest.mark.parametrize(
    ("line", "tuned"),
    [
        ("torch._inductor.config.max_autotune = True", True),
        ("torch._inductor.config.max_autotune_gemm = True", True),
        ("import torch._inductor.config\ntorch._inductor.config.max_autotune = False", False),
        ("import torch._inductor.config", False),
        ("os.environ['TORCHINDUCTOR_MAX_AUTOTUNE_GEMM'] = '1'", True),
        ("[abc] inductor_config[max_autotune]: True", True),
        ("[abc] inductor_config[max_autotune]: False", False),
        ("nothing of it", None),
    ],
)
def test_whether_a_graph_was_tuned(line: str, tuned: bool | None) -> None:
    assert read_graph_text(f"x\n{line}\n".encode()).tuned is tuned


def test_our_own_choice_comes_back_from_its_comment() -> None:
    for options in ((), (("stride", (2, 2)),)):
        choice = OwnChoice("convolution", KEY, "rocm_conv-1", options)
        for mark in ("#", "//"):
            text = form(EXTERN, call=f"{mark} {choice.text()}")
            assert read_graph_text(text.encode()).own == {choice}
        assert read_graph_text(choice.text().encode()).own == frozenset()


# Parts


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("4, s7, 8*s7", (4, 3, 24)),
        ("4L, 2L*3L, s8", (4, 6, None)),
        ("", ()),
        ("4, ", (4,)),
        ("9" * 19, (int("9" * 19),)),
        ("9" * 20, (None,)),
        ("²", (None,)),
        ("2*s8", (None,)),
    ],
)
def test_sizes_in_python_and_in_cpp(text: str, sizes: tuple[int | None, ...]) -> None:
    assert parts.dims(text, {"s7": 3}) == sizes


def test_the_arguments_of_a_call_are_split_outside_brackets() -> None:
    assert parts.split_arguments("a, (b, c), [d, {e, f}] , g=h(i, j)") == [
        "a", "(b, c)", "[d, {e, f}]", "g=h(i, j)",
    ]  # fmt: skip
    assert parts.split_arguments("") == [""]


@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("aten.bmm.default", "bmm"),
        ("aten.bmm", "bmm"),
        ("flex_attention", "flex_attention"),
        ("torch__inductor_fx_passes_post_grad_mm_plus_mm", "mm_plus_mm"),
        ("mkldnn._linear_pointwise.binary", "_linear_pointwise"),
    ],
)
def test_the_op_of_a_node(target: str, name: str) -> None:
    assert parts.op_name(target) == name


@pytest.mark.parametrize(
    ("kind", "source", "config"),
    [
        (
            "triton",
            "    num_stages=2, num_warps=4, kpack=2)\n    BLOCK : tl.constexpr = 64\n"
            "    INDEX_DTYPE : tl.constexpr = tl.int32\n",
            {"BLOCK": "64", "kpack": "2", "num_stages": "2", "num_warps": "4"},
        ),
        (
            "cpp",
            "constexpr int64_t Mt_blocks = 4;\nconstexpr int64_t K = 8;\nconstexpr int64_t K = 9;",
            {"K": "8 9", "Mt_blocks": "4"},
        ),
        (
            "rocm",
            "/* k_per_block */ 64, /* layout */ ck::Row, /* a_cluster */ S<4, 16, 1>, 7",
            {"A_CLUSTER": "(4, 16, 1)", "K_PER_BLOCK": "64", "LAYOUT": "Row"},
        ),
        ("cuda", "/* k_per_block */ 64\n    BLOCK : tl.constexpr = 64\n", {}),
    ],
)
def test_the_constants_of_a_kernel(kind: str, source: str, config: dict[str, str]) -> None:
    assert kernel_config(source, kind) == tuple(config.items())


def test_a_kernel_computes_the_nodes_of_the_last_fragment_before_it() -> None:
    node = "#   %{} : Tensor = call_function[target=x]\n"
    text = "# Graph fragment:\n" + node.format("old") + "\n# Graph fragment:\n" + node.format("mm")
    assert parts.fragment_nodes(text + node.format("add")) == {"mm", "add"}
    assert parts.fragment_nodes(node.format("mm")) == frozenset()


def test_a_printed_graph_ends_at_its_return() -> None:
    head = "class M(torch.nn.Module):\n"
    text = f"{head}    a = x()\n    return a\n    b = y()\n{head}    c = z()\n"
    assert parts.printed_graphs(text) == ["    a = x()\n"]


def test_a_source_that_comes_later_is_read_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "constexpr int64_t Mt_blocks = 4;\n"
    digest = hashlib.sha256(source.encode()).digest()
    key = "c" + base64.b32encode(digest)[:51].decode().lower()
    choice, other = f"CppTemplateCaller-{key}", f"CppTemplateCaller-c{'a' * 51}"
    sources = ChoiceSources(tmp_path)
    assert sources.constants(choice, "cpp") == {}
    path = tmp_path / "ab" / "cabc.cpp"
    path.parent.mkdir()
    path.write_text(source)
    assert sources.constants(choice, "cpp") == {}, "it was looked for just now"
    monkeypatch.setattr(parts, "RETRY_SECONDS", -1.0)
    assert sources.constants(choice, "cpp") == {"Mt_blocks": "4"}
    path.unlink()
    assert sources.constants(choice, "cpp") == {"Mt_blocks": "4"}
    assert sources.constants(choice, "cuda") == sources.constants(choice, "") == {}
    assert sources.distinguishing(choice, (choice, "mm-c1", "triton_mm-c2")) == {}
    assert sources.distinguishing(choice, (other, "mm-c1")) == {"Mt_blocks": "4"}
