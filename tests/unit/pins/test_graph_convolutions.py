"""Convolutions that share a key, and kernels that name more convolutions than they compute. The
texts have the form of real graphs of a GPU, see `support/graphs_gpu`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.model import options
from backend.model.problem import TensorSpec
from backend.pins.graphs.match import Verdict, WantedChoice, form_of, judge, node_serves
from backend.pins.graphs.parts import GraphCall, GraphTensor
from backend.pins.graphs.text import OwnChoice, read_graph_text

X = "('cuda', 'torch.float16', 2, 16, 8, 8, 1024, 1, 128, 16, 0)"
W = "('cuda', 'torch.float16', 16, 16, 3, 3, 144, 1, 48, 16, 0)"
KEY = f"[{X}, {W}]"


def aten(stride: int) -> str:
    return (
        "convolution-bias=None-dilation=(1, 1)-groups=1-output_padding=(0, 0)-padding=(1, 1)-"
        f"stride=({stride}, {stride})-transposed=False-czwx4srm3bwpt2u7hh3rms7ioq55y2rxzcvmhoobhn"
    )


_NODE = (
    '        {name}: "f16[2, 16, {out}, {out}][{image}, 1, {line}, 16]cuda:0" = '
    "torch.ops.aten.convolution.default({x}, {w}, {bias}, [{s}, {s}], [1, 1], [1, 1], False, "
    "[0, 0], 1);  {w} = None\n"
)
_FRAGMENT = (
    "#   %{name} : Tensor [num_users=1] = call_function[target=torch.ops.aten.convolution.default]"
    "(args = (), kwargs = {{}})\n"
)
_TRITON = '''# Graph fragment:
{fragments}triton_tem_fused_{at} = async_compile.triton('triton_tem_fused_{at}', """
    STRIDE_H : tl.constexpr = {s}
    STRIDE_W : tl.constexpr = {s}
    PADDING_H : tl.constexpr = 1
    PADDING_W : tl.constexpr = 1
    GROUPS : tl.constexpr = 1
    BLOCK_M : tl.constexpr = 64
""", device_str='cuda')
'''


def node(name: str, x: str, w: str, stride: int, bias: str = "None") -> str:
    out = 8 // stride
    return _NODE.format(
        name=name, out=out, image=16 * out * out, line=16 * out, x=x, w=w, bias=bias, s=stride
    )


def triton(at: int, stride: int, *nodes: str) -> str:
    return _TRITON.format(
        at=at, s=stride, fragments="".join(_FRAGMENT.format(name=n) for n in nodes)
    )


def extern(x: str, w: str, stride: int, to: str) -> str:
    return (
        f"        {to} = extern_kernels.convolution({x}, {w}, stride=({stride}, {stride}), "
        "padding=(1, 1), dilation=(1, 1), transposed=False, output_padding=(0, 0), groups=1, "
        f"bias=None)\n        assert_size_stride({to}, (2, 16, 8, 8), (1024, 1, 128, 16))\n"
    )


def graph(kernels: str, calls: str, nodes: str) -> str:
    weight = "(16, 16, 3, 3), (144, 1, 48, 16)"
    inputs = "".join(f"        assert_size_stride({w}, {weight})\n" for w in ("w1", "w2"))
    typed = ", ".join(f'{w}: "f16[16, 16, 3, 3][144, 1, 48, 16]cuda:0"' for w in ("w1", "w2"))
    return (
        f"async_compile = AsyncCompile()\n{kernels}class Runner:\n    def call(self, args):\n"
        f"        assert_size_stride(x1, (2, 16, 8, 8), (1024, 1, 128, 16))\n{inputs}{calls}"
        "        return (buf9, )\nclass <lambda>(torch.nn.Module):\n"
        f'    def forward(self, x1: "f16[2, 16, 8, 8][1024, 1, 128, 16]cuda:0", {typed}, '
        f'b1: "f16[16][1]cuda:0"):\n{nodes}        return (convolution,)\n'
    )


def verdict(text: str, choice: str, *rivals: str, stride: int | None = None) -> Verdict:
    constants = {} if stride is None else {"STRIDE_H": str(stride), "STRIDE_W": str(stride)}
    constants |= {"PADDING_H": "1", "PADDING_W": "1", "GROUPS": "1", "BLOCK_M": "64"}
    constants = {} if stride is None else constants
    wanted = WantedChoice("convolution", KEY, choice, (choice, *rivals), {}, constants)
    return judge(read_graph_text(text.encode()), wanted)


def test_convolutions_of_one_key_are_told_apart_by_their_options() -> None:
    nodes = node("convolution", "x1", "w1", 1) + node("convolution_1", "x1", "w2", 2)
    launch = "        triton_tem_fused_0.run(x1, w2, buf2, 4, 1, 1, stream=stream0)\n"
    text = graph(triton(0, 2, "convolution_1"), extern("x1", "w1", 1, "buf1") + launch, nodes)
    ones, twos = (aten(1), "triton_convolution2d-c1"), (aten(2), "triton_convolution2d-c2")
    assert verdict(text, *ones) == "same"
    assert verdict(text, *reversed(twos)) == "same"
    assert verdict(text, *twos) == "other"
    assert verdict(text, *reversed(ones)) == "other"
    # A record of times has what all programs tuned under the key.
    assert verdict(text, *ones, *twos) == "same"
    assert verdict(text, twos[1], *ones, *twos, stride=2) == "same"
    assert verdict(text, ones[1], *ones, *twos, stride=1) == "other"
    # Nothing tells of which convolution this one is: that it is not called is not known.
    assert verdict(text, "triton_convolution2d-c3", *ones, *twos) == "unknown"
    assert verdict(text, aten(3)) == "absent"


def test_a_bias_that_is_added_elsewhere_is_no_convolution() -> None:
    """The second convolution's kernel adds the first one's bias behind it, and names it too."""
    nodes = node("convolution", "x1", "w1", 1, "b1") + node("convolution_1", "x1", "w2", 1)
    kernel = triton(0, 1, "convolution", "convolution_1")
    launch = "        triton_tem_fused_0.run(x1, w2, b1, buf1, buf2, 4, 1, 1, stream=stream0)\n"
    both = extern("x1", "w1", 1, "buf1") + extern("x1", "w2", 1, "buf2")
    rivals = (aten(1), "triton_convolution2d-c1", "triton_convolution2d-c2")
    # Both are called of ATen, and the kernel is that of a third one with another weight.
    third = node("convolution_2", "x1", "w3", 1)
    many = kernel.replace("convolution_1", "convolution_2")
    assert verdict(graph(many, both + launch, nodes + third), *rivals) == "same"
    # One is called of ATen; that the other one is not, its own kernel tells.
    one = extern("x1", "w1", 1, "buf1") + launch
    assert verdict(graph(kernel, one, nodes), *rivals) == "unknown"
    alone = triton(0, 1, "convolution_1")
    assert verdict(graph(alone, one, nodes), *rivals) == "other"


def test_our_choices_of_one_key_are_told_apart_too() -> None:
    given = {s: options.options_of_hash("convolution", aten(s)) for s in (1, 2)}
    own = [OwnChoice("convolution", KEY, f"rocm_conv-{s}", given[s]) for s in (1, 2)]
    calls = "".join(f"        # {choice.text()}\n" for choice in own)
    text = graph("", calls, node("convolution", "x1", "w1", 1) + node("c", "x1", "w2", 2))
    assert read_graph_text(text.encode()).own == frozenset(own)
    every = (aten(1), aten(2), "rocm_conv-1", "rocm_conv-2")
    for choice in ("rocm_conv-1", "rocm_conv-2"):
        assert verdict(text, choice, *every) == "same"
    assert verdict(text, aten(1), *every) == "other"
    assert verdict(text, "rocm_conv-3", *every) == "unknown"


_NUMBERS = st.lists(st.integers(0, 999), min_size=1, max_size=3)


@given(st.dictionaries(st.sampled_from(options.CONVOLUTION), _NUMBERS))
def test_options_come_back(values: dict[str, list[int]]) -> None:
    given = options.options(values)
    assert options.options_of_text(options.text_of_options(given)) == given


def test_options_by_place_by_name_and_in_a_hash_are_the_same() -> None:
    placed = ["x", "w", "None", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    named = ["x", "w", "stride=(2, 2)", "padding=(1, 1)", "dilation=(1, 1)", "transposed=False"]
    named += ["output_padding=(0, 0)", "groups=1", "bias=None"]
    assert options.convolution_of_arguments(placed) == options.convolution_of_arguments(named)
    assert options.convolution_of_arguments(named) == options.options_of_hash(
        "convolution", aten(2)
    )
    assert options.options_agree(
        (("stride", (2,)),), options.options_of_hash("convolution", aten(2))
    )
    assert not options.options_agree(
        (("stride", (1,)),), options.options_of_hash("convolution", aten(2))
    )
    assert options.options_of_hash("convolution", "triton_convolution2d-c1") == ()


@pytest.mark.parametrize(("points", "serves"), [(1, True), (3, False)])
def test_a_convolution_of_one_point_serves_the_product_that_it_becomes(
    points: int, serves: bool
) -> None:
    half, gpu = "torch.float16", "cuda"
    image = GraphTensor((2, 16, 8, 8), (1024, 1, 128, 16), half, gpu)
    weight = GraphTensor((32, 16, points, points), (16 * points**2, 1, 16, 16), half, gpu)
    specs = [
        TensorSpec(gpu, half, (128, 16), (16, 1), 0),
        TensorSpec(gpu, half, (16, 32), (1, 16), 0),
    ]
    call = GraphCall("convolution", (image, weight))
    assert node_serves(call, specs, form_of("mm"), False) is serves
    scalar = GraphTensor((), (), half, gpu)
    assert not node_serves(GraphCall("convolution", (scalar, weight)), specs, form_of("mm"), False)
