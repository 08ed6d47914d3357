"""Real graphs of a GPU: which op with which inputs they hold, and which choice they call."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from backend.model.origin import kind_of
from backend.model.problem import TensorSpec
from backend.pins.graphs.match import (
    OPS,
    GraphUses,
    WantedChoice,
    form_of,
    judge,
    launch_fits,
    may_hold,
    merged_layout,
    node_serves,
)
from backend.pins.graphs.parts import ChoiceSources, GraphCall, GraphTensor, WrapperKernel
from backend.pins.graphs.text import GraphText, read_graph_text
from tests.support.graph_lab import GRAPH, KEY, TRITON, form
from tests.support.graph_samples import FOLDER, Sample, samples

SAMPLES = samples()
MODULES: dict[str, str] = json.loads((FOLDER / "modules.json").read_text())


def name_of(sample: Sample) -> str:
    return f"{sample.name}-{sample.op}"


@pytest.fixture
def sources(tmp_path: Path) -> ChoiceSources:
    """The modules of some choices, where Inductor keeps them."""
    for key, text in MODULES.items():
        path = tmp_path / key[1:3] / f"{key}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return ChoiceSources(tmp_path)


@pytest.mark.parametrize("sample", SAMPLES, ids=name_of)
def test_a_graph_of_a_gpu_is_found_by_what_was_tuned(sample: Sample) -> None:
    graph = read_graph_text(sample.data)
    assert sample.rivals
    for choice in sample.rivals:
        wanted = WantedChoice(sample.op, sample.inputs, choice, sample.rivals)
        verdict = judge(graph, wanted)
        if sample.called is None:
            assert verdict == "absent"
        elif kind_of(choice) and kind_of(sample.called):
            assert verdict == "unknown"  # two of Triton's, and nothing is known of them
        else:
            assert verdict == ("same" if choice == sample.called else "other")
        assert verdict == "absent" or may_hold(sample.data, wanted)


def test_every_op_of_these_graphs_has_a_proven_row() -> None:
    ops = {sample.op for sample in SAMPLES if sample.called}
    assert len(ops) >= 11 and all(OPS[op].proven for op in ops)


@pytest.mark.parametrize(
    "sample",
    [s for s in SAMPLES if s.called and s.called.rpartition("-")[2] in MODULES],
    ids=name_of,
)
def test_choices_of_one_template_are_told_apart_by_their_modules(
    sample: Sample, sources: ChoiceSources
) -> None:
    """No session recorded them; what Inductor compiled to time them lies there."""
    graph = read_graph_text(sample.data)
    told = {}
    for choice in sample.rivals:
        constants = sources.constants(choice, kind_of(choice))
        assert bool(constants) == bool(kind_of(choice))
        wanted = WantedChoice(sample.op, sample.inputs, choice, sample.rivals, {}, constants)
        told[choice] = judge(graph, wanted)
    assert told == {c: "same" if c == sample.called else "other" for c in sample.rivals}


def _pairs() -> list[tuple[Sample, Sample]]:
    rows = {(s.name, s.op): s for s in SAMPLES if s.called and kind_of(s.called)}
    return [
        (one, rows[name.removesuffix("a") + "b", op])
        for (name, op), one in rows.items()
        if name.endswith(".a") and (name.removesuffix("a") + "b", op) in rows
    ]


@pytest.mark.parametrize("pair", _pairs(), ids=lambda pair: name_of(pair[0]))
def test_a_graph_with_another_config_is_another_choices(pair: tuple[Sample, Sample]) -> None:
    """Two graphs of one program, whose kernels have the constants of two choices."""
    graphs = [read_graph_text(sample.data) for sample in pair]
    for mine, other in (graphs, reversed(graphs)):
        constants = _constants(mine)
        wanted = WantedChoice(
            pair[0].op, pair[0].inputs, "triton_x-c1", ("triton_y-c2",), {}, constants
        )
        assert (judge(mine, wanted), judge(other, wanted)) == ("same", "other")


def _constants(graph: GraphText) -> dict[str, str]:
    (kernel,) = graph.templates
    return dict(kernel.config)


EXTERN = """
async_compile = AsyncCompile()
def call(args):
    assert_size_stride(arg0_1, (512, 256), (256, 1))
    assert_size_stride(arg1_1, (256, 128), (128, 1))
    extern_kernels.{call}
"""


def parsed(text: str) -> GraphText:
    return read_graph_text(text.encode())


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("mm", "mm"), ("mm", "_sparse_semi_structured_mm"), ("mm", "mm_dtype"),
        ("addmm", "addmm"), ("addmm", "bias_addmm"), ("bmm", "bmm"), ("bmm", "bmm_dtype"),
        ("baddbmm", "baddbmm"), ("int_mm", "_int_mm"), ("scaled_mm", "_scaled_mm"),
        ("grouped_mm", "_grouped_mm"), ("mm_plus_mm", "_mm_plus_mm"),
        ("convolution", "convolution"), ("_weight_int8pack_mm", "_weight_int8pack_mm"),
        ("_weight_int4pack_mm_for_cpu", "int4mm_packed_weight_cpu"),
        ("packed_linear", "_mkl_linear"),
    ],
)  # fmt: skip
def test_what_wrappers_call_the_library_kernels_of_an_op(op: str, name: str) -> None:
    """Whether or not one of them was timed."""
    graph = parsed(EXTERN.replace("{call}", f"{name}(arg0_1, arg1_1, out=buf0)"))
    template = WantedChoice(op, KEY, "triton_x-c1", ("triton_x-c1",))
    assert judge(graph, template) == "other"
    assert judge(graph, WantedChoice(op, KEY, f"{name}-c1")) == "same"
    other = parsed(EXTERN.replace("{call}", "other(arg0_1, arg1_1, out=buf0)"))
    assert judge(other, template) == "absent"


@pytest.mark.parametrize(
    ("op", "node"),
    [
        ("mm", "mm"), ("addmm", "addmm"), ("bmm", "bmm"), ("baddbmm", "baddbmm"),
        ("int_mm", "_int_mm"), ("scaled_mm", "_scaled_mm"), ("grouped_mm", "_grouped_mm"),
        ("mm_plus_mm", "mm_plus_mm"), ("convolution", "convolution"),
        ("flex_attention", "flex_attention"),
        ("flex_attention_backward", "flex_attention_backward"),
        ("_weight_int8pack_mm", "_weight_int8pack_mm"),
        ("_weight_int4pack_mm_for_cpu", "_weight_int4pack_mm_for_cpu"),
        ("packed_linear", "_mkl_linear"), ("packed_linear", "_linear_pointwise"),
        ("linear_unary", "_linear_pointwise"), ("linear_binary", "_linear_pointwise"),
    ],
)  # fmt: skip
def test_what_graphs_call_the_nodes_of_an_op(op: str, node: str) -> None:
    text = form(TRITON + GRAPH)
    graph = parsed(text.replace("aten.mm.default", f"aten.{node}.default"))
    wanted = WantedChoice(op, KEY, "aten-c1", ("aten-c1", "triton_x-c2"))
    assert judge(graph, wanted) == "other"
    assert judge(parsed(text.replace("aten.mm.", "aten.others.")), wanted) == "absent"
    # Of some ops Inductor may change the memory format of an operand first.
    turned = replace(wanted, inputs=KEY.replace("512, 256, 256, 1", "512, 256, 1, 512"))
    assert judge(graph, turned) == ("other" if op == "convolution" else "absent")
    # A node whose operands have no printed sizes may be it.
    untyped = text.replace("aten.mm.default(arg0_1", f"aten.{node}.default(x")
    untyped = untyped.replace("        mm:", "        x = aten.topk.default(arg1_1)\n        mm:")
    assert judge(parsed(untyped), wanted) == "unclear"


@pytest.mark.parametrize(
    "op",
    [
        "scaled_grouped_mm", "convolution_bwd_weight", "convolution_bwd_input",
        "sparse_semi_structured_mm", "flex_flash_attention", "flex_flash_attention_backward",
        "flex_gemm_epilogue", "b2b_gemm", "qlinear_unary", "qlinear_binary", "grouped_gemm",
        "an_op_of_a_later_pytorch",
    ],
)  # fmt: skip
def test_an_op_that_was_seen_in_no_graph_is_never_said_to_be_absent(op: str) -> None:
    wanted = WantedChoice(op, KEY, "triton_x-c1", ("triton_x-c1",))
    for text in (form(TRITON + GRAPH), form(TRITON)):
        assert judge(parsed(text), wanted) == "unclear" and may_hold(text.encode(), wanted)
    assert judge(parsed(form(TRITON + GRAPH, m=511)), wanted) == "absent"
    name = form_of(op).nodes[-1]
    called = EXTERN.replace("{call}", f"{name}_of_later_versions(x, y, out=buf0)")
    assert judge(parsed(called), replace(wanted, inputs=KEY.replace("512", "7"))) == "unclear"
    assert judge(parsed(form(TRITON + GRAPH)), replace(wanted, inputs="no key")) == "absent"
    kernel = form(TRITON, m=511).replace("tem_fused_mm", f"tem_fused_{name.strip('_')}")
    assert judge(parsed(kernel), wanted) == "unclear"


@pytest.mark.parametrize(
    ("sizes", "serves"),
    [((1024, 64), True), ((1024, 65), False), ((None, 64), True), (None, False)],
)
def test_the_query_of_a_decoding_call_has_another_shape(
    sizes: tuple[int | None, ...] | None, serves: bool
) -> None:
    specs = [TensorSpec("cuda", "torch.float16", (n, 32, 64), (2048, 64, 1), 0) for n in (32, 4, 4)]
    operands = [GraphTensor(spec.sizes, spec.strides, spec.dtype, "cuda") for spec in specs]
    operands[0:1] = [] if sizes is None else [GraphTensor(sizes, (64, 1))]
    call = GraphCall("flex_attention", tuple(operands))
    assert node_serves(call, specs, form_of("flex_decoding"), False) is serves
    assert not node_serves(replace(call, name="x"), specs, form_of("flex_decoding"), False)


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("mm 512, 256", True),
        ("mm 256L, 128L", True),
        ("mm 256, 129", False),
        ("bm 512, 256", False),
        ("mm [s7, 4]", True),
        ("mm (s7, 4)", True),
        ("mm {s7, 4}", True),
        ("mm s7, 4", False),
    ],
)
def test_an_entry_is_only_parsed_if_it_may_hold_the_op(text: str, may: bool) -> None:
    assert may_hold(text.encode(), WantedChoice("mm", KEY, "mm-c1", ("triton_mm-c2",))) is may
    scalar = WantedChoice("mm", KEY.replace("[", "[('cuda', 'torch.float16', 0), "), "mm-c1")
    assert may_hold(text.encode(), scalar) is may
    assert may_hold(text.encode(), WantedChoice("mm", "no key", "mm-c1"))


@pytest.mark.parametrize(
    ("sizes", "strides", "merged"),
    [
        ((4, 8), (8, 1), ((32, 1),)),
        ((4, 8), (1, 4), ((4, 1), (8, 4))),
        ((4, 1, 8), (8, 99, 1), ((32, 1),)),
        ((4, 8, 2), (16, 2, 1), ((64, 1),)),
        ((None, 8), (8, 1), ((None, 8), (8, 1))),
        ((4, None), (None, 1), ((4, None), (None, 1))),
        ((1, 1), (1, 1), ()),
    ],
)
def test_layouts_that_are_the_same_in_memory(
    sizes: tuple[int | None, ...], strides: tuple[int | None, ...], merged: object
) -> None:
    assert merged_layout(sizes, strides) == merged


def test_a_graph_of_another_gpu_does_not_count() -> None:
    text = form(TRITON + GRAPH)
    wanted = WantedChoice("mm", KEY, "mm-c1", ("mm-c1", "triton_mm-c2"))
    for line in (
        "with torch.cuda._DeviceGuard(1):",
        "AOTICudaGuard device_guard(1)",
        "DeviceProperties(type='cuda', index=1, cc=90)",
    ):
        graph = parsed(text.replace("    return", f"    {line}\n    return"))
        assert graph.devices == {1}
        for device, verdict in ((None, "other"), (1, "other"), (0, "absent")):
            assert judge(graph, replace(wanted, device=device)) == verdict
    assert judge(parsed(text), replace(wanted, device=0)) == "other", "it names no GPU"


NODE = '        {}: "f16[512, 128][128, 1]cuda:0" = torch.ops.aten.mm.default({}, arg1_1)\n'


def test_calls_of_the_library_that_are_other_products_leave_none_of_these() -> None:
    """Each node of these sizes is called with other strides than those of the key."""
    view = "reinterpret_tensor(arg1_1, (256, 128), (1, 256), 0)"
    text = EXTERN.replace("{call}", f"mm(arg0_1, {view}, out=buf0)") + form(GRAPH)
    assert judge(parsed(text), WantedChoice("mm", KEY, "mm-c1", ("triton_mm-c2",))) == "absent"
    assert GraphUses(parsed(text)).held("mm", KEY) is None
    # One call more is in the graph than in the wrapper: some kernel computes it.
    node = NODE.format("mm_1", "arg0_1")
    more = text.replace("        return (mm,)", node + "        return (mm,)")
    assert GraphUses(parsed(more)).held("mm", KEY) is not None


def test_where_an_op_occurs_in_a_graph() -> None:
    calls = NODE.format("mm_1", "arg0_1") + NODE.format("mm_2", "arg9_1")
    fragment = "# Graph fragment:\n#   %{} : Tensor = call_function[target=torch.ops.aten.mm](x)\n"
    text = form(TRITON + GRAPH).replace("        return (mm,)", calls + "        return (mm,)")
    first, second = (f"triton_tem_fused_mm_{n} = " for n in (0, 1))
    text = text.replace(first, fragment.format("mm_1") + first)
    other = f"{fragment.format('mm_2')}{second}async_compile.triton('x')\n\ndef call"
    text = text.replace("\ndef call", other, 1)
    extern = "    extern_kernels.{}(arg0_1, arg1_1, out=buf0)\n    return"
    text = text.replace("    return", extern.format("bmm"), 1)
    text = text.replace("    return", extern.format("mm"), 1)
    uses = GraphUses(parsed(text))
    held = uses.held("mm", KEY)
    assert held is not None and uses.externs == ("bmm", "mm")
    assert (held.count, held.kernels, held.externs) == (2, {"triton_tem_fused_mm_0"}, (1,))
    wanted = [WantedChoice("mm", KEY, choice) for choice in ("mm-c1", "triton_mm-c2")]
    assert uses.chosen(held, wanted).hash is None, "both are called"
    alone = replace(held, kernels=frozenset())
    assert uses.chosen(alone, wanted).hash == "mm-c1"
    assert uses.chosen(alone, [*wanted, WantedChoice("mm", KEY, "mm-c3")]).hash is None
    assert uses.held("addmm", KEY) is uses.held("mm", "no key") is None
    assert uses.held("mm", KEY.replace("512, 256", "8, 8").replace("256, 128", "8, 4")) is None


def test_a_kernel_whose_source_is_not_there_may_be_any_of_its_kind() -> None:
    code = "#include <torch.h>\nstatic hipFunction_t triton_tem_fused_mm_0;\n"
    code += "void inductor_entry_impl() {\n    call_triton_tem_fused_mm_0({});\n}\n"
    unknown = parsed(code.replace("{}", "x"))
    (kernel,) = unknown.templates
    assert (kernel.config, kernel.calls) == ((), ())
    text = code.replace("{}", "x").replace(
        "{\n",
        "{\n    assert_size_stride(a, {512L, 256L}, {256L, 1L});\n"
        "    assert_size_stride(b, {256L, 128L}, {128L, 1L});\n",
    )
    rivals = ("mm-c1", "triton_mm-c2", "triton_mm-c3")
    constants = {"BLOCK_M": "64"}
    wanted = WantedChoice("mm", KEY, "triton_mm-c2", rivals, constants, constants)
    assert judge(parsed(text), wanted) == "unknown"
    assert judge(parsed(text), replace(wanted, hash="mm-c1")) == "other"
    (kernel,) = parsed(text.replace("(x)", "(x, a)")).templates
    assert [operand.sizes for operand in kernel.calls[0]] == [(512, 256)]


def test_a_kernel_whose_call_is_not_there_may_read_any_inputs() -> None:
    spec = TensorSpec("cuda", "torch.float16", (64, 32), (32, 1), 0)
    kernel = WrapperKernel("triton_mm", "triton", ())
    assert launch_fits(kernel, [spec])
    other = GraphTensor((3, 5), (5, 1), "torch.float32")
    assert not launch_fits(replace(kernel, calls=((other,),)), [spec])
