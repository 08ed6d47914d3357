"""Messages survive their line, and what is none is refused."""

from __future__ import annotations

import pytest

from backend.model.choice import Choice
from backend.wire.codec import WireError
from backend.wire.jobs import CompileResult, Gpu, Progress, TuneJob, TuneResult
from rocm_tui.fleet.messages import (
    Beat,
    Cancel,
    Compile,
    Compiled,
    Done,
    Facts,
    Gone,
    Hello,
    Offer,
    Stop,
    ToAgent,
    ToDriver,
    Unit,
    line_of,
    message_of,
)

FACTS = Facts(host="box", device="AMD Instinct MI300X", arch="gfx942", compute_units=304)
RESULT = TuneResult(ok=True, op="mm", choices=(Choice(name="mm", hash="mm-1", ms=0.25),))
GPU = Gpu("gfx942", 304, {"hip": "a1"})
MESSAGES: tuple[ToAgent | ToDriver, ...] = (
    Offer("7", Unit("3fa91c2", "mm 8x8x8", TuneJob("mm", shapes=((8, 8), (8, 8))), {"mm-1": 0.5})),
    Compile("8", Unit("3fa91c2", "mm 8x8x8", TuneJob("mm", "[]", "highest")), GPU),
    Cancel("7"),
    Stop(),
    Hello("box/0", FACTS),
    Beat("box/0", ("7", "8"), Progress("timing"), clock=2100.0, power=412.5),
    Done("box/0", "7", "3fa91c2", FACTS, RESULT, seconds=1.5),
    Done("box/0", "7", "3fa91c2", FACTS, reason="its worker died"),
    Compiled("box/0", "8", "3fa91c2", CompileResult(ok=True, compiled=2, failed={"a": "no"})),
    Gone("box/0", "its pipe ended", returns=True),
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_survives_its_line(message: ToAgent | ToDriver) -> None:
    line = line_of(message)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert message_of(line) == message


@pytest.mark.parametrize(
    "line", [b"", b"{}", b"[1]", b'{"is": "exec"}', b"\xff", b'{"is": "beat"}']
)
def test_what_is_no_message_is_refused(line: bytes) -> None:
    with pytest.raises(WireError):
        message_of(line)
