"""A call of flex attention as text: all that is needed to make it again, but the numbers.

Inductor's key tells the tensors of a call, and not all of them; the functions that change scores
and that mask are part of every choice's source. So `rocm-tui run` records, beside the key, the call
as Inductor's graph has it, as JSON in one line: nothing of it is ever run as Python.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from backend.model.problem import TensorSpec
from backend.wire.codec import WireError, dumps, loads, read, to_json

MOST_TEXT = 1 << 18
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


def text_of(call: FlexCall) -> str:
    return dumps(to_json(call))


def call_of(text: str) -> FlexCall:
    """The call of a text. Raises NotACall."""
    if len(text) > MOST_TEXT:
        raise NotACall(f"it has more than {MOST_TEXT:,} characters")
    try:
        return read(FlexCall, loads(text))
    except WireError as error:
        raise NotACall(str(error)) from error
