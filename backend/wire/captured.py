"""The file of a captured graph: what Inductor was given beside it, then PyTorch's own repro format.

    # rocm-tui graph: {"torch": "2.13.0", "kind": "inference", ...}
    import torch
    ...
    class Repro(torch.nn.Module):
        def forward(self, arg0_1, arg1_1):
            mm = torch.ops.aten.mm.default(arg0_1, arg1_1);  arg0_1 = arg1_1 = None
            return (mm,)

    def load_args(reader):
        buf0 = reader.storage(None, 4096)
        reader.tensor(buf0, (32, 32), is_leaf=True)  # arg0_1
        ...

`python FILE` compiles and runs it by PyTorch's means alone, but for flex attention, at which they
fail in torch 2.13. No weight stands in it: they are drawn when it is run.

A function of flex attention is a class within `__init__`: `class sdpa_mask0(torch.nn.Module): ...`,
then `self.sdpa_mask0 = sdpa_mask0()`.

A call of flex attention is captured alone too, as JSON in one line (`FlexCall`): Inductor's key has
some tensors of a call, and the functions that change scores and that mask are part of every
choice's source. `rocm-tui run` records it beside the key. Nothing of either text is ever run as
Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from backend.model.graph import GraphKind
from backend.model.problem import TensorSpec
from backend.wire.codec import WireError, dumps, loads, read, to_json

VERSION = 1
MOST_BYTES = 32 << 20
"""Of a file; a graph of 10,000 nodes has 1 MB."""

MARK = "# rocm-tui graph: "

PRELUDE = """
import torch
import torch.fx as fx
import torch._inductor.inductor_prims
from math import inf, nan
from torch import device


class Repro(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
"""

FINALE = """
load_args._version = 0
mod = Repro()
if __name__ == '__main__':
    from torch._dynamo.repro.after_aot import run_repro
    with torch.no_grad():
        run_repro(mod, load_args, accuracy=False, command='run', save_dir=None, """

MODES = {False: "tracing_mode='real')\n", True: "tracing_mode='symbolic')\n"}
"""How PyTorch traces it, by whether sizes are symbols."""


class NotAHead(Exception):
    """The first line does not say what Inductor is to be told; one line says why."""


@dataclass(frozen=True, slots=True)
class Head:
    """What Inductor was told beside the graph and its inputs.

    `static` are the inputs that stay where they are from call to call, `donated` those that the
    graph may write into, `visible` the outputs that the program sees. `layout` tells whether
    convolutions are to have channels last. `freezing`: it is the graph before its parameters,
    the inputs `frozen`, became constants. `config` are Inductor's options, `precision` is that of
    float32 products. `symbols` are sizes that may vary, with what they were. `origins` names the op
    of the model by the node that it led to, `bounds` says below what an input of indices stays,
    `ends` how many rows there are where an input says where groups of them end.
    """

    torch: str
    kind: GraphKind = "inference"
    version: int = VERSION
    static: tuple[int, ...] = ()
    donated: tuple[int, ...] = ()
    visible: tuple[int, ...] | None = None
    cudagraphs: bool = False
    cpp_wrapper: bool = False
    layout: bool | None = None
    freezing: bool = False
    frozen: tuple[int, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    precision: str = "highest"
    threads: int = 1
    symbols: Mapping[str, int] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    bounds: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[str, int] = field(default_factory=dict)


def head_line(head: Head) -> str:
    return MARK + dumps(to_json(head))


def head_of(text: str) -> Head:
    """Raises NotAHead."""
    line, _, _ = text.partition("\n")
    if not line.startswith(MARK):
        raise NotAHead("line 1 is no head of a captured graph")
    try:
        head: Head = read(Head, loads(line.removeprefix(MARK)))
    except WireError as error:
        raise NotAHead(f"line 1: {error}") from error
    if head.version != VERSION:
        raise NotAHead(f"line 1: it is of version {head.version}, and only {VERSION} is known")
    return head


MOST_FLEX_TEXT = 1 << 18
"""Characters of a call; a function of 1,000 ops has about 80,000."""

SCORE, MASK, JOINT = "score_mod", "mask_mod", "joint"
"""The functions: of a score, of a mask, and of a score's gradient."""


FUNCTIONS = {
    "flex_attention": (SCORE, MASK),
    "flex_attention_backward": (SCORE, JOINT, MASK),
}
"""By op of the graph, the functions in the order of its arguments."""


class NotACall(Exception):
    """A text is no call; one line says why."""


@dataclass(frozen=True, slots=True)
class FlexCall:
    """`call` is `flex_attention(t0, t1, t2, score_mod, (1024, ..., mask_mod), 0.125, {...}, (t5,),
    ())`: its op, and its arguments as literals, with the `tensors` by number and the `functions` by
    name. Those are what PyTorch prints of a graph, with what it has of constants before it.

    Where a call could not be written, `reason` says why, and there is nothing else.
    """

    call: str = ""
    tensors: tuple[TensorSpec, ...] = ()
    functions: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""


def flex_text(call: FlexCall) -> str:
    return dumps(to_json(call))


def flex_call_of(text: str) -> FlexCall:
    """The call of a text. Raises NotACall."""
    if len(text) > MOST_FLEX_TEXT:
        raise NotACall(f"it has more than {MOST_FLEX_TEXT:,} characters")
    try:
        return read(FlexCall, loads(text))
    except WireError as error:
        raise NotACall(str(error)) from error
