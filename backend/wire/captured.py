"""The file of a captured graph: Inductor's other arguments, then PyTorch's own repro format.

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

`python FILE` compiles and runs it with PyTorch alone, except for flex attention, with which this
fails in torch 2.13. Weights are not stored: a run draws random ones.

A function of flex attention is a class within `__init__`: `class sdpa_mask0(torch.nn.Module): ...`,
then `self.sdpa_mask0 = sdpa_mask0()`.

A call of flex attention is also captured alone, as a line of JSON (`FlexCall`): Inductor's key has
only some tensors of a call, while the score and mask functions are part of every choice's source.
`rocm-tui run` records it beside the key. Neither text is ever run as Python.
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
"""The maximum size of a file; a graph of 10,000 nodes has 1 MB."""

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
"""PyTorch's tracing mode, by whether sizes are symbols."""


class HeadInvalid(Exception):
    """The first line is not a valid head; the message is one line."""


@dataclass(frozen=True, slots=True)
class Head:
    """Inductor's arguments beside the graph and its inputs.

    `static` are inputs with a fixed address, `donated` the ones that the graph may write into,
    `visible` the outputs that the program sees. `layout` is whether convolutions use channels last.
    `freezing`: the graph is from before its parameters, the inputs `frozen`, became constants.
    `config` are Inductor's options, `precision` that of float32 products. `symbols` are the dynamic
    sizes with their values. `origins` maps nodes to the model's ops, `bounds` has the upper bound
    of each input of indices, `ends` the number of rows for each input that has the ends of groups.
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
    """Return the head in a captured graph's first line. Raises HeadInvalid."""
    line, _, _ = text.partition("\n")
    if not line.startswith(MARK):
        raise HeadInvalid("line 1 is not a head of a captured graph")
    try:
        head: Head = read(Head, loads(line.removeprefix(MARK)))
    except WireError as error:
        raise HeadInvalid(f"line 1: {error}") from error
    if head.version != VERSION:
        raise HeadInvalid(f"line 1: version {head.version} is not supported (only {VERSION})")
    return head


MOST_FLEX_TEXT = 1 << 18
"""Characters of a call; a function of 1,000 ops has about 80,000."""

SCORE, MASK, JOINT = "score_mod", "mask_mod", "joint"
"""The functions of a score, of a mask, and of a score's gradient."""


FUNCTIONS = {
    "flex_attention": (SCORE, MASK),
    "flex_attention_backward": (SCORE, JOINT, MASK),
}
"""The functions of each op, in the order of its arguments."""


class FlexCallInvalid(Exception):
    """A text is not a valid call; the message is one line."""


@dataclass(frozen=True, slots=True)
class FlexCall:
    """A call of flex attention. `call` is `flex_attention(t0, t1, t2, score_mod, (1024, ...,
    mask_mod), 0.125, {...}, (t5,), ())`: its op, and its arguments as literals, with the `tensors`
    by number and the `functions` by name, each as PyTorch prints the graph, preceded by its
    constants.

    If the call could not be written, only `reason` is set.
    """

    call: str = ""
    tensors: tuple[TensorSpec, ...] = ()
    functions: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""


def flex_text(call: FlexCall) -> str:
    return dumps(to_json(call))


def flex_call_of(text: str) -> FlexCall:
    """Return the call of a text. Raises FlexCallInvalid."""
    if len(text) > MOST_FLEX_TEXT:
        raise FlexCallInvalid(f"it has more than {MOST_FLEX_TEXT:,} characters")
    try:
        return read(FlexCall, loads(text))
    except WireError as error:
        raise FlexCallInvalid(str(error)) from error
