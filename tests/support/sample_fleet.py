"""A run of a fleet as its record tells it: hosts at work, a slow card, one refused, one gone."""

from __future__ import annotations

from pathlib import Path

from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.wire.jobs import Progress, TuneJob, TuneResult
from rocm_tui.fleet import lines
from rocm_tui.fleet.lines import Line, text_of
from rocm_tui.fleet.messages import Done, Facts, Unit
from rocm_tui.fleet.record import Record
from tests.support import sample_job

RUN = "20260921-140000-5eed"
_CLASS = "gfx942, 304 CUs, SPX/NPS1"
_TITLES = (
    "mm 4096×4096 · 4096×11008 bf16", "mm 8×4096 · 4096×4096 bf16",
    "bmm 32×1×128 · 32×128×2048 bf16", "addmm 4096 · 512×4096 · 4096×4096 bf16",
    "convolution 8×64×56×56 · 128×64×3×3 f16", "mm 1024×8192 · 8192×8192 bf16",
)  # fmt: skip


def _facts(host: str, units: int = 304) -> Facts:
    return Facts(
        host=host, device="AMD Instinct MI300X", arch="gfx942", compute_units=units,
        partition="SPX/NPS1", system_hash=sample_job.SYSTEM, torch="2.13.0",
    )  # fmt: skip


def _result(ms: float, winner: str) -> TuneResult:
    other = "mm" if winner != "mm" else "triton_mm_4"
    choices = (Choice(winner, f"{winner}-1", ms), Choice(other, f"{other}-2", ms * 1.2))
    return TuneResult(ok=True, op="mm", choices=choices)


def hold(cache: Path) -> Record:
    """Write the record, and hold it as its driver does."""
    record = Record(Layout(cache), RUN)
    record.path.write_bytes(b"".join(text_of(line, at) for at, line in _story()))
    return record


def _story() -> list[tuple[float, Line]]:
    begun = sample_job.NOW - 60
    units = [
        Unit(f"{n:x}a91c2f", title, TuneJob("mm", f"[{n}]", "highest"), weight=20.0)
        for n, title in enumerate(_TITLES, 3)
    ]
    names = ("node7/0", "node7/1", "node8/0", "node8/1", "node9/0")
    story: list[Line] = [
        lines.Begun(RUN, who="ada@node7", fleet=("ray:auto",), repeat=1, units=tuple(units)),
        lines.Chosen(sample_job.SYSTEM, _CLASS),
        *(lines.Came(name, _facts(name.split("/")[0])) for name in names),
        lines.Came("node4/0", _facts("node4", 80), "it has 80 CUs, the run 304: --class takes it"),
    ]
    done = (("node7/0", 0, 18.4, 1.879, "triton_mm_4"), ("node8/1", 1, 27.9, 0.0231, "mm"))
    for at, (name, unit, seconds, ms, winner) in enumerate(done):
        result = _result(ms, winner)
        said = Done(name, f"{at}", units[unit].id, _facts(name), result, seconds=seconds)
        story += [
            lines.Lent(name, f"{at}", units[unit].id),
            lines.Done(said),
            lines.Merged(units[unit].id, name, sample_job.SYSTEM, f"{winner}-1", 1, 1),
        ]
    story += [lines.Slow("node8/1", 1.31), lines.Lost("node9/0", "its node died", returns=True)]
    for at, (name, unit) in enumerate((("node7/0", 2), ("node7/1", 3), ("node8/0", 4)), 5):
        story.append(lines.Lent(name, f"{at}", units[unit].id))
        progress = Progress(timed=2 + unit, total=12, best="triton_mm_7", best_ms=0.214)
        story.append(lines.Pulse(name, units[unit].id, progress, 2100.0 - 7 * at, 612.0 + at, 64.0))
    story.append(lines.Tried(units[4].id, "node8/1", "its worker was killed by signal 9"))
    return [(begun + at * 3, line) for at, line in enumerate(story)]
