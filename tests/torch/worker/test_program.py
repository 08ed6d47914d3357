"""A captured graph's text is hostile until each statement is known: nothing of it is ever run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backend.wire.captured import FINALE, MODES, PRELUDE, Head, head_line
from backend.worker.trial.drawn import NotDrawable, drawn_constants, drawn_inputs
from backend.worker.trial.program import program_of
from backend.worker.trial.text import TextRefused

pytestmark = pytest.mark.torch

HEAD = Head("2.13.0", bounds={"index": 5}, static=(1,))
CONSTANT = "self.register_buffer('_c', torch.tensor([1.5, -inf]).to(torch.float32).reshape([2]))"
BODY = """
    mm = torch.ops.aten.mm.default(x, w);  w = None
    gathered = torch.ops.aten.embedding.default(mm, index)
    pair = torch.ops.aten.topk.default(gathered, 2)
    values = pair[0];  pair = None
    _c = self._c
    half = torch.ops.prims.convert_element_type.default(values, torch.bfloat16)
    full = torch.ops.aten.full.default([2], -inf, dtype = torch.float32, layout = torch.strided, \
device = device(type='cpu'), pin_memory = False)
    add = torch.ops.aten.add.Tensor(_c, full)
    return (half, add)
"""
LOADS = """
    buf0 = reader.storage(None, 160)
    reader.tensor(buf0, (5, 4), (4, 1), storage_offset=20, is_leaf=True)  # x
    buf1 = reader.storage(None, 64, dtype_hint=torch.float32)
    reader.tensor(buf1, (4, 4), (1, 4), is_leaf=True)  # w
    buf2 = reader.storage(None, 24, dtype_hint=torch.int64)
    reader.tensor(buf2, (3,), (1,), dtype=torch.int64, is_leaf=True)  # index
"""


def text(
    body: str = BODY,
    loads: str = LOADS,
    *,
    constant: str = CONSTANT,
    arguments: str = "self, x, w, index",
    head: Head = HEAD,
) -> str:
    sizes = "".join(f"{name} = {hint}\n" for name, hint in head.symbols.items())
    inner = "".join(f"    {line}\n" for line in body.strip("\n").splitlines())
    return (
        f"{head_line(head)}\n{sizes}{PRELUDE}        {constant}\n\n"
        f"    def forward({arguments}):\n{inner}\n\n"
        f"def load_args(reader):\n{loads.strip(chr(10))}\n{FINALE}{MODES[bool(head.symbols)]}"
    )


def test_what_the_writer_makes_is_read() -> None:
    program = program_of(text())
    nodes = [node.name for node in program.graph().nodes]
    assert nodes[:3] == ["x", "w", "index"] and nodes[3:6] == ["mm", "gathered", "pair"]
    x, w, index = drawn_inputs(program)
    assert (tuple(x.shape), x.storage_offset(), w.stride()) == ((5, 4), 20, (1, 4))
    assert int(index.min()) >= 0 and int(index.max()) < 5
    assert [float(number) for number in drawn_constants(program)["_c"]] == [1.5, float("-inf")]
    again = drawn_inputs(program)
    assert all(bool((a == b).all()) for a, b in zip((x, w, index), again, strict=True))


FUNCTION = """class mask(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
            def forward(self, b, h, q, k):
                ge = torch.ops.aten.ge.Tensor(q, k)
                return ge
        self.mask = mask()"""


def test_a_function_of_a_graph_is_read() -> None:
    program = program_of(text(constant=f"{CONSTANT}\n        {FUNCTION}"))
    (function,) = program.functions.values()
    assert [node.name for node in function.module().graph.nodes][4:] == ["ge", "output"]


DEEP = "[" * 90 + "]" * 90
HOSTILE = [
    text(BODY.replace("mm = torch.ops.aten.mm.default(x, w)", statement))
    for statement in (
        "mm = exec('import os')",
        "mm = __import__('os').system('true')",
        "import os",
        "mm = (lambda: x)()",
        "mm = x.__class__.__mro__[1].__subclasses__()",
        "mm = torch.load('/tmp/x')",
        "mm = torch.ops.aten.mm.default.__globals__",
        "mm = torch.ops.load_library('/tmp/x.so')",
        "mm = torch.ops.aten.from_file.default('evil', True, 4096)",
        "mm = torch.ops.mylib.evil.default(x)",
        "mm = torch.ops.aten.mm.default(*x)",
        "mm = torch.ops.aten.mm.default(x, **w)",
        "mm = torch.ops.aten.mm.default(x, [w for w in x])",
        f"mm = torch.ops.aten.mm.default(x, {DEEP})",
        f"mm = torch.ops.aten.mm.default(x, {DEEP[:-60]}{']' * 40})",
        "mm = torch.ops.aten.mm.default(x, 9" + "9" * 5000 + ")",
        "mm = torch.ops.aten.mm.default(x, 99999999999999999999999)",
        "mm = torch.ops.aten.add.Tensor(x, '../../etc/passwd')",
        "mm = 10 ** 10 ** 10",
        "mm = x ** 99999999",
        "mm = x[w]",
        "mm = self.__dict__",
        "mm = unknown",
        "x.y = mm = x",
        "mm: int = x",
        "mm = yield x",
        "while True: pass",
        "mm = f'{x}'",
        "mm = getattr(x, 'data')",
        "mm = torch.ops.aten.mm.default(x, w, out=torch.cuda)",
        "return (x,)",
    )
]
HOSTILE += [text(loads=LOADS + f"    {line}\n") for line in (
    "reader.tensor(buf0, (5, 4), (4, 1), is_leaf=True)",
    "import os",
    "open('/tmp/x', 'w')",
    "reader.storage(None, 4)",
    "buf9 = reader.storage('hash', 4)",
    "buf9 = reader.storage(None, 4 ** 4 ** 4 ** 4)",
    "buf9 = reader.storage(None, len('x'))",
    "buf9 = reader.storage(None, 4, device=device(type='meta'))",
    "buf9 = other.storage(None, 4)",
    "reader.opaque('x')",
)]  # fmt: skip
HOSTILE += [text(constant=constant) for constant in (
    "self.register_buffer('_c', torch.load('x'))",
    "self.register_buffer('_c', torch.tensor([open('x')]).to(torch.float32).reshape([1]))",
    "self._c = __import__('os')",
    "import os",
)]  # fmt: skip
HOSTILE += [text(constant=f"{CONSTANT}\n        {FUNCTION.replace(*change)}") for change in (
    ("self.mask = mask()", "self.mask = open('x')"),
    ("self.mask = mask()", ""),
    ("super().__init__()", "open('x')"),
    ("class mask(torch.nn.Module)", "class mask(open)"),
    ("class mask(torch.nn.Module)", "class mask(torch.nn.Module, metaclass=open)"),
    ("class mask", "@open\n        class mask"),
    ("def __init__(self)", "def __init__(self, x=open('x'))"),
    ("torch.ops.aten.ge.Tensor(q, k)", "open(q)"),
    ("torch.ops.aten.ge.Tensor(q, k)", "torch.ops.higher_order.cond(q, k)"),
    ("                return ge", "                return ge\n            x = open('x')"),
)]  # fmt: skip
HOSTILE += [
    text() + "import os\n",
    text().replace("import torch\n", "import torch, os\n", 1),
    text().replace("def load_args", "import os\ndef load_args"),
    text().replace("def load_args", "@exec\ndef load_args"),
    text().replace("    def forward", "    @staticmethod\n    def forward"),
    text().replace("    def forward", "    evil = 1\n    def forward"),
    text(arguments="self, x, w, index=open('x')"),
    text(arguments="self, x, w, *index"),
    text(arguments="self, x, w"),
    text(head=replace(HEAD, symbols={"torch": 3}))[: -len(FINALE)],
    text(head=replace(HEAD, symbols={"import os; x": 3})),
    text(head=replace(HEAD, symbols={"None": 3})),
    text(head=replace(HEAD, version=2)),
    text().replace("# rocm-tui graph: {", "# rocm-tui graph: [{"),
    "",
    "import os\n",
    "\n" * 100_000,
    "\0",
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=range(len(HOSTILE)))
def test_anything_else_is_refused_with_its_line(hostile: str, tmp_path: Path) -> None:
    with pytest.raises(TextRefused) as caught:
        program_of(hostile)
    said = str(caught.value)
    assert "\n" not in said and len(said) < 200
    assert "line " in said or "it has other statements" in said or "it is not Python" in said


@pytest.mark.parametrize(
    "loads",
    [
        LOADS.replace("reader.storage(None, 160)", "reader.storage(None, 159)"),
        LOADS.replace("storage_offset=20", "storage_offset=21"),
        LOADS.replace("(5, 4), (4, 1)", "(5, 4), (-4, 1)"),
        LOADS.replace("reader.storage(None, 160)", "reader.storage(None, 1 * 4611686018427387903)"),
        LOADS.replace("reader.storage(None, 160)", "reader.storage(None, 0 - 160)"),
    ],
)
def test_a_view_stays_within_its_memory(loads: str) -> None:
    with pytest.raises(NotDrawable, match="its inputs cannot be made here"):
        drawn_inputs(program_of(text(loads=loads)))


def test_options_of_a_file_lead_to_no_program_and_no_folder() -> None:
    from backend.inductor.torch.captured import usable_settings  # heavy: Inductor

    given = {"max_autotune": True, "cpp.cxx": "/tmp/evil", "cuda.cutlass_dir": "/tmp"}
    given |= {"trace.enabled": True, "max_autotune_gemm_backends": "ATEN,../x", "unknown": 1}
    given |= {"aot_inductor.output_path": "/x", "joint_custom_pre_pass": "os.system"}
    assert usable_settings(given) == {"max_autotune": True}
