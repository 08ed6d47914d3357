"""The log of a program that calls compiled graphs, of hand-made numbers."""

from __future__ import annotations

from pathlib import Path

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice, MeasuredChoice, Measurement
from backend.model.events import (
    ChoiceSelected,
    ChoiceTimed,
    GraphCalled,
    GraphCompiled,
    GraphTried,
    TuningMeasured,
    TuningStarted,
)
from backend.model.graph import Graph, Trial, TrialArm, TuningUse
from backend.model.session import Session


def inputs(m: int) -> str:
    """The key of m x 64 x 32."""
    return (
        f"[('cpu', 'torch.float32', {m}, 32, 32, 1, 0), ('cpu', 'torch.float32', 32, 64, 64, 1, 0)]"
    )


def use(m: int, count: int = 1, hash: str | None = "tri-1") -> TuningUse:
    return TuningUse("mm", inputs(m), "highest", count, hash)


def writer_of(
    cache: Path, id: str = "5e551011", rank: int | None = None, started: float = 100.0
) -> EventWriter:
    session = Session(
        id, host="h", pid=1, rank=rank, argv=("python", "/x/llama.py"), started=started,
        device="cpu",
    )  # fmt: skip
    return EventWriter(Layout(cache), session)


def tune(writer: EventWriter, n: int, m: int, aten: float, triton: float) -> None:
    """A tuning of m x 64 x 32 with two choices; the faster one is selected."""
    choices = (Choice("mm", "mm-1"), Choice("triton_mm_1", "tri-1"))
    writer.write(
        TuningStarted(
            n, 100.0 + n, "mm", inputs(m), "highest", ((m, 32), (32, 64)), ((32, 1), (64, 1)),
            ("torch.float32",) * 2, "cpu", choices,
        )
    )  # fmt: skip
    writer.write(ChoiceTimed(n, "mm-1", aten))
    writer.write(ChoiceTimed(n, "tri-1", triton))
    chosen = "mm-1" if aten < triton else "tri-1"
    writer.write(ChoiceSelected(n, 101.0 + n, chosen, "timing", 0.1, 0.1))


def measurement(m: int, best: str, other: str, ms: float, ratio: float) -> Measurement:
    """`best` takes `ms`, `other` is slower by `ratio`, at most by half as much again."""
    most = 1 + (ratio - 1) * 1.5
    first = MeasuredChoice(best, ms, ms, ms, 0.01, 40, 1.0, 1.0, 1.0, "faster")
    second = MeasuredChoice(
        other, ms * ratio, ms * ratio, ms * ratio, 0.01, 40, ratio, 1.0, most, "slower"
    )
    return Measurement("mm", inputs(m), "highest", 200.0, (first, second), rounds=40)


def write_program(cache: Path) -> Path:
    """llama.py: a graph of 10 ms called 80 times, another of 4 ms called 50 times: 1000 ms.

    The first holds 8x64x32 four times (1 ms, timed once) and 16x64x32 once (measured: 2 ms, and
    ATen is 25 % better); the second 8x64x32 once, and 24x64x32, whose single time of 9 ms cannot
    be.
    """
    writer = writer_of(cache)
    tune(writer, 1, 8, 2.0, 1.0)
    tune(writer, 2, 16, 2.5, 1.9)
    tune(writer, 3, 24, 12.0, 9.0)
    tune(writer, 4, 32, 1.0, 2.0)
    forward = Graph(
        "aaaaaa1", "forward", "fkey1", "Llama.forward", "cpu", 12, (use(8, 4), use(16)),
        captured=True,
    )  # fmt: skip
    loss = Graph("bbbbbb2", "inference", None, "loss", "cpu", 3, (use(8), use(24)))
    writer.write(GraphCompiled(1, 105.0, forward))
    writer.write(GraphCompiled(2, 105.0, loss))
    writer.write(GraphCalled(1, 106.0, 10, 3, 9.0))
    writer.write(GraphCalled(1, 107.0, 80, 5, 10.0))
    writer.write(GraphCalled(2, 107.0, 50, 5, 4.0))
    writer.write(TuningMeasured(measurement(16, "mm-1", "tri-1", 1.6, 1.25)))
    arms = (TrialArm((), 10.0, 9.9, 10.1, 1.0, 1.0, 1.0, "tied", 30),)
    writer.write(GraphTried(Trial("aaaaaa1", 300.0, arms, rounds=30)))
    writer.close()
    return writer.path
