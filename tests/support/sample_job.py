"""A job of two ranks as files of a cache dir: each state a screen can show, made-up numbers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from backend.model.choice import Choice, MeasuredChoice, Measurement, Verdict
from backend.model.events import (
    ChoiceCompiled,
    ChoiceFailed,
    ChoiceSelected,
    ChoiceTimed,
    Event,
    SessionStarted,
    TuningMeasured,
    TuningStarted,
)
from backend.model.session import Session
from backend.wire.events import encode

NOW = 1_790_000_000.0
"""Unix time at which the pictures are taken."""
SYSTEM = "4" * 64
HALF, SINGLE = "torch.bfloat16", "torch.float32"

Timed = Mapping[str, float | None]


def session(rank: int, device: str = "AMD Instinct MI300X") -> Session:
    return Session(
        id=f"{rank:016x}",
        host="node7",
        pid=4100 + rank,
        rank=rank,
        argv=("train.py",),
        python="/venv/bin/python",
        torch="2.13.0",
        device=device,
        arch="gfx942",
        compute_units=304,
        system_hash=SYSTEM,
        started=NOW - 900,
        backends=("ATEN", "TRITON", "CK"),
        absent=("CK: ck4inductor is not installed",),
    )


class Log:
    """The event log of one rank, written event by event."""

    def __init__(self, cache: Path, rank: int) -> None:
        self.session = session(rank)
        self.path = (
            cache / "rocm_tui" / "sessions" / f"node7-{self.session.pid}-1-{rank:016x}.jsonl"
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lines = [encode(SessionStarted(self.session))]
        self._number = 0
        self.entries: dict[str, dict[str, dict[str, dict[str, float]]]] = {}

    def tune(
        self,
        op: str,
        shapes: Sequence[tuple[int, ...]],
        times: Timed,
        *,
        dtype: str = HALF,
        ago: float,
        seconds: float = 2.4,
        configs: Mapping[str, str] | None = None,
        unfinished: bool = False,
    ) -> str:
        """One tuning; choices without a time failed, or wait where it is unfinished. Its inputs."""
        self._number += 1
        n, when = self._number, NOW - ago
        strides = [_contiguous(shape) for shape in shapes]
        inputs = inputs_of(shapes, dtype)
        found = {name: hash_of(op, shapes, name) for name in times}
        described = configs or {}
        choices = tuple(Choice(name, found[name], None, described.get(name, "")) for name in times)
        dtypes = (dtype,) * len(shapes)
        self._put(
            TuningStarted(
                n, when - seconds, op, inputs, "highest", tuple(shapes), tuple(strides), dtypes,
                "cuda", choices,
            )
        )  # fmt: skip
        self._put(*(ChoiceCompiled(n, found[name], 0.4) for name in times))
        for name, ms in times.items():
            if ms is not None:
                self._put(ChoiceTimed(n, found[name], ms))
            elif not unfinished:
                why = "out of resources: shared memory, required 98304, limit 65536"
                self._put(ChoiceFailed(n, found[name], "benchmark", why))
        if not unfinished:
            timed = {name: ms for name, ms in times.items() if ms is not None}
            best = found[min(timed, key=lambda name: timed[name])]
            self._put(ChoiceSelected(n, when, best, "timing", seconds * 0.7, seconds * 0.3))
            kept = {found[name]: float("inf") if ms is None else ms for name, ms in times.items()}
            self.entries.setdefault(op, {})[inputs] = {"highest": kept}
        return inputs

    def measure(
        self,
        op: str,
        shapes: Sequence[tuple[int, ...]],
        told: Iterable[tuple[str, float, float, float, Verdict]],
        *,
        ago: float,
        dtype: str = HALF,
        trouble: tuple[str, ...] = (),
    ) -> None:
        """A repeated measurement: name, median, ratio to the best, its relative error, verdict."""
        choices = tuple(
            MeasuredChoice(
                hash_of(op, shapes, name), ms, ms * 0.996, ms * 1.004, 0.021, 48,
                ratio, ratio * (1 - error), ratio * (1 + error), verdict, name,
            )
            for name, ms, ratio, error, verdict in told
        )  # fmt: skip
        inputs = inputs_of(shapes, dtype)
        self._put(
            TuningMeasured(
                Measurement(
                    op, inputs, "highest", NOW - ago, choices, rounds=48, seconds=11.4,
                    reference_ms=0.8, trouble=trouble, device="cuda", system_hash=SYSTEM,
                )
            )
        )  # fmt: skip

    def _put(self, *events: Event) -> None:
        self._lines += [encode(event) for event in events]
        self.path.write_text("\n".join(self._lines) + "\n")


def hash_of(op: str, shapes: Sequence[tuple[int, ...]], name: str) -> str:
    """A choice hash of the form that Inductor gives."""
    stem = name.rstrip("0123456789").rstrip("_")
    number = sum(ord(c) * (at + 1) for at, c in enumerate(f"{op}{shapes}{name}"))
    return f"{stem}-{number:08x}{'c' * 44}"


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1]
    for size in shape[:0:-1]:
        strides.insert(0, strides[0] * size)
    return tuple(strides) if shape else ()


def inputs_of(shapes: Sequence[tuple[int, ...]], dtype: str = HALF) -> str:
    """The inputs key of contiguous operands, as Inductor writes it."""
    specs = [("cuda", dtype, *shape, *_contiguous(shape), 0) for shape in shapes]
    return "[" + ", ".join(map(repr, specs)) + "]"


def _triton(m: int, n: int, k: int, warps: int, stages: int, mfma: int = 16) -> str:
    return (
        f"ACC_TYPE='tl.float32', ALLOW_TF32=False, BLOCK_K={k}, BLOCK_M={m}, BLOCK_N={n}, "
        f"EVEN_K=True, GROUP_M=8, kpack=2, matrix_instr_nonkdim={mfma}, num_stages={stages}, "
        f"num_warps={warps}, waves_per_eu=0"
    )


CONFIGS = {
    "triton_mm_4": _triton(256, 256, 64, 8, 2),
    "triton_mm_7": _triton(256, 128, 64, 8, 2),
    "triton_mm_11": _triton(128, 128, 64, 4, 2),
    "triton_mm_12": _triton(128, 128, 32, 4, 2, 32),
    "triton_mm_15": _triton(64, 64, 128, 4, 3),
    "triton_mm_18": _triton(32, 64, 256, 2, 3),
}

SQUARE = ((8192, 8192), (8192, 8192))
WIDE = ((4096, 5120), (5120, 13824))
TALL = ((16, 5120), (5120, 5120))
BATCH = ((64, 2048, 128), (64, 128, 2048))
LINEAR = ((4096, 5120), (4096, 5120), (5120, 5120))
HEAD = ((4096, 5120), (5120, 32000))


def write(cache: Path) -> None:
    """Two ranks, eight problems: won, tied, measured in every way, failing, running."""
    first, second = Log(cache, 0), Log(cache, 1)
    _tuned(first)
    _measured(first)
    second.tune("mm", WIDE, {"mm": 1.093, "triton_mm_7": 1.127, "triton_mm_4": 1.021},
                configs=CONFIGS, ago=420)  # fmt: skip
    second.tune("mm", SQUARE, {"mm": 2.118, "triton_mm_4": 1.912, "triton_mm_7": 2.3},
                configs=CONFIGS, ago=410, seconds=3.1)  # fmt: skip
    entries = {
        op: {**second.entries.get(op, {}), **first.entries.get(op, {})}
        for op in {*first.entries, *second.entries}
    }
    path = cache / "cache" / SYSTEM
    path.parent.mkdir(parents=True, exist_ok=True)
    system = {"device": {"name": "gfx942:sramecc+:xnack-"}}
    path.write_text(json.dumps({"system": system, "cache": dict(sorted(entries.items()))}))


def _tuned(log: Log) -> None:
    log.tune("mm", SQUARE, {
        "triton_mm_4": 1.874, "triton_mm_7": 1.993, "mm": 2.104, "triton_mm_11": 2.338,
        "triton_mm_12": 2.467, "triton_mm_15": 4.122, "triton_mm_18": None,
    }, configs=CONFIGS, ago=700, seconds=9.6)  # fmt: skip
    log.tune("mm", WIDE, {
        "triton_mm_4": 1.012, "mm": 1.024, "triton_mm_7": 1.061, "triton_mm_11": 1.298,
    }, configs=CONFIGS, ago=640, seconds=6.2)  # fmt: skip
    log.tune("addmm", LINEAR, {
        "addmm": 0.3742, "triton_mm_7": 0.3768, "bias_addmm": 0.3791, "triton_mm_11": 0.4020,
    }, configs=CONFIGS, ago=590, seconds=5.1)  # fmt: skip
    log.tune("mm", TALL, {
        "triton_mm_18": 0.01542, "triton_mm_15": 0.01561, "mm": 0.01779, "triton_mm_12": 0.0231,
    }, configs=CONFIGS, ago=520, seconds=3.3)  # fmt: skip
    log.tune("bmm", BATCH, {
        "triton_bmm_3": 0.2310, "bmm": 0.2351, "triton_bmm_5": 0.2389, "triton_bmm_9": 0.3127,
    }, ago=300, seconds=4.0)  # fmt: skip
    log.tune("mm", WIDE, {
        "mm": 1.019, "triton_mm_4": 1.020, "triton_mm_7": 1.074, "triton_mm_11": 1.301,
    }, configs=CONFIGS, ago=240, seconds=5.9)  # fmt: skip
    log.tune("convolution", ((32, 64, 56, 56), (128, 64, 3, 3)), {
        "convolution": 0.0912, "triton_convolution2d_4": None, "triton_convolution2d_0": 0.1480,
    }, ago=200, seconds=2.0)  # fmt: skip
    log.tune("mm", HEAD, {
        "mm": 2.031, "triton_mm_4": 2.012, "triton_mm_7": 2.207, "triton_mm_11": None,
        "triton_mm_12": None, "triton_mm_15": None,
    }, configs=CONFIGS, ago=0, unfinished=True)  # fmt: skip


def _measured(log: Log) -> None:
    log.measure("mm", SQUARE, [
        ("triton_mm_4", 1.881, 1.0, 0.0, "faster"), ("triton_mm_7", 2.001, 1.064, 0.004, "slower"),
        ("mm", 2.096, 1.114, 0.005, "slower"),
    ], ago=480)  # fmt: skip
    log.measure("mm", TALL, [
        ("triton_mm_15", 0.01538, 1.0, 0.0, "tied"),
        ("triton_mm_18", 0.01543, 1.003, 0.006, "tied"),
    ], ago=470)  # fmt: skip
    log.measure("bmm", BATCH, [
        ("bmm", 0.2298, 1.0, 0.0, "faster"), ("triton_bmm_3", 0.2369, 1.031, 0.006, "slower"),
        ("triton_bmm_5", 0.2401, 1.045, 0.011, "slower"),
    ], ago=180, trouble=("the clock fell by 9 % in the last third",))  # fmt: skip
    log.measure("addmm", LINEAR, [
        ("addmm", 0.3751, 1.0, 0.0, "unclear"), ("triton_mm_7", 0.3789, 1.010, 0.019, "unclear"),
        ("bias_addmm", 0.3795, 1.012, 0.021, "unclear"),
        ("triton_mm_11", 0.4021, 1.072, 0.02, "slower"),
    ], ago=100)  # fmt: skip
