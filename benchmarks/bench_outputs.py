"""What choices compute: how many honest ones are called further off than rounding explains or not
deterministic, and how many planted kernels are not told apart.

    python benchmarks/bench_outputs.py [--device cuda] [--seconds 60] [--only honest] [--skip N]

Honest ones are tuned and measured by the worker: ATen, Inductor's templates and ours, for products
and convolutions of several types, whose sums are made in many orders. A line a choice. Planted ones
(`tests/support/planted_sums.py`) add up in another order, leave terms out, or race; on a GPU also
in Triton (`planted_triton.py`). Ends with 1 if there is a false alarm or a kernel that is not told
apart.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from backend.wire.jobs import JobInvalid
from rocm_tui.jobs.limits import JobError
from rocm_tui.jobs.worker import Worker, spawn_worker
from tests.support.planted_sums import Planted, by_triton, families

F32, F16, BF16, F8 = "float32", "float16", "bfloat16", "float8_e4m3fn"


@dataclass(frozen=True)
class Problem:
    """An op on tensors of these shapes; `turned` of them are stored by columns. `dtypes` is one for
    all, or one each."""

    op: str
    shapes: Sequence[Sequence[int]]
    dtypes: Sequence[str]
    turned: Sequence[int] = ()
    options: str = ""
    backends: Sequence[str] = ()

    def job(self, device: str) -> dict[str, Any]:
        job: dict[str, Any] = {
            "job": "tune", "device": device, "templates": True, "op": self.op,
            "shapes": self.shapes, "dtypes": [f"torch.{dtype}" for dtype in self.dtypes],
            "strides": [_strides(shape, at in self.turned) for at, shape in enumerate(self.shapes)],
        }  # fmt: skip
        more = {"options": self.options, "backends": self.backends}
        return {**job, **{name: given for name, given in more.items() if given}}


def _strides(shape: Sequence[int], turned: bool) -> list[int]:
    sizes = [*shape[:-2], shape[-1], shape[-2]] if turned else shape
    steps = [1] * len(sizes)
    for at in reversed(range(len(sizes) - 1)):
        steps[at] = steps[at + 1] * sizes[at + 1]
    return [*steps[:-2], *steps[-1:], *steps[-2:-1]] if turned else steps


def conv(**changed: str) -> str:
    usual = {
        "dilation": "1x1", "groups": "1", "output_padding": "0x0", "padding": "1x1",
        "stride": "1x1", "transposed": "0",
    }  # fmt: skip
    return ",".join(f"{name}={value}" for name, value in (usual | changed).items())


def on_cpu() -> Iterator[Problem]:
    for dtype in (F32, BF16, F16):
        yield Problem("mm", [[48, 256], [256, 64]], [dtype])
        yield Problem("mm", [[5, 1000], [1000, 96]], [dtype], turned=[1])
        yield Problem("bmm", [[3, 40, 128], [3, 128, 48]], [dtype])
        yield Problem("addmm", [[64], [32, 512], [512, 64]], [dtype], turned=[2])
        yield Problem("mm_plus_mm", [[48, 256], [256, 64]] * 2, [dtype])
        image = [2, 16, 12, 12]
        yield Problem("convolution", [image, [16, 1, 3, 3]], [dtype], options=conv(groups="16"))
    scales = [F8, F8, F32, F32]
    yield Problem("scaled_mm", [[32, 256], [256, 48], [], []], scales, turned=[1])
    yield Problem("scaled_mm", [[32, 256], [256, 48], [32, 1], [1, 48]], scales, turned=[1])
    yield Problem("grouped_mm", [[48, 64], [3, 64, 32], [3]], [BF16, BF16, "int32"])
    yield Problem("packed_linear", [[32, 256], [48, 256]], [F32])
    for name in ("none", "relu"):
        yield Problem(
            "linear_unary",
            [[32, 256], [48, 256]],
            [BF16],
            options=f"algorithm=,attr={name},scalars=",
        )


def on_gpu() -> Iterator[Problem]:
    """The most telling ones first: there may be no time for all. Triton takes minutes to compile
    its many choices of fp8."""
    fp8 = [F8, F8, F32, F32]
    images = [8, 64, 28, 28]
    yield Problem("mm", [[256, 8192], [8192, 512]], [BF16])
    yield Problem("mm", [[256, 4096], [4096, 512]], [F32])
    yield Problem(
        "scaled_mm", [[256, 4096], [4096, 512], [], []], fp8, turned=[1], backends=["ATEN"]
    )
    yield Problem("bmm", [[8, 200, 512], [8, 512, 256]], [F16])
    yield Problem("convolution", [images, [128, 64, 1, 1]], [BF16], options=conv(padding="0x0"))
    yield Problem("mm", [[33, 16384], [16384, 64]], [F16], turned=[1])
    yield Problem("convolution", [images, [128, 64, 3, 3]], [F16], options=conv())
    yield Problem("convolution", [images, [128, 64, 3, 3]], [F32], options=conv(dilation="2x2"))
    yield Problem("addmm", [[512], [256, 2048], [2048, 512]], [BF16], turned=[2])
    yield Problem("bmm", [[8, 200, 512], [8, 512, 256]], [BF16], turned=[1])
    yield Problem("scaled_mm", [[256, 2048], [2048, 512], [256, 1], [1, 512]], fp8, turned=[1])


def measured(worker: Worker, problem: Problem, device: str) -> list[dict[str, Any]]:
    """The choices of a problem with their outputs. Raises JobError."""
    tuned = worker.exchange(problem.job(device))
    if not tuned["ok"]:
        raise JobError(str(tuned["reason"]))
    hashes = [choice["hash"] for choice in tuned["choices"] if choice["ms"]]
    key = {name: tuned[name] for name in ("op", "inputs", "precision")}
    asked = {
        "job": "measure", **key, "hashes": hashes, "budget": 0.1, "partly": True,
        "options": problem.options,
    }  # fmt: skip
    answer = worker.exchange(asked)
    if not answer["ok"]:
        raise JobError(str(answer["reason"]))
    found = answer["measurement"]
    return [*found["choices"], *found["failed"]]


def honest(device: str, end: float, cache: Path, skipped: int) -> int:
    """Prints a line a choice; how many false alarms there are. The first problems are skipped."""
    count = alarms = bounds = left = 0
    with spawn_worker(sys.executable, cache) as worker:
        problems = on_cpu() if device == "cpu" else on_gpu()
        for problem in itertools.islice(problems, skipped, None):
            if time.monotonic() > end:
                left += 1
                continue
            try:
                choices = measured(worker, problem, device)
            except (JobError, JobInvalid) as error:
                print(problem.op, *problem.dtypes, "not measured:", error, flush=True)
                continue
            for choice in choices:
                output = choice.get("output")
                if output is None:
                    reason = str(choice.get("reason"))
                    print(problem.op, *problem.dtypes, choice["name"], reason, flush=True)
                    alarms += "wrong result" in reason
                    continue
                alarm = output["beyond"] or output["same"] < output["runs"]
                count, alarms = count + 1, alarms + bool(alarm)
                bounds += bool(output["compared"])
                flag = "ALARM" if alarm else ""
                print(problem.op, *problem.dtypes, choice["name"], output, flag, flush=True)
    print(f"{alarms} false alarms of {count} choices, {bounds} of them with a bound", end="")
    print(f"; {left} problems left out: no time" if left else "", flush=True)
    return alarms


def planted(device: str, end: float) -> int:
    """Prints a line a family; how many mistakes there are."""
    mistakes = count = 0
    for family in _planted(device):
        if time.monotonic() > end:
            break
        found = family.mistakes()
        count, mistakes = count + 1, mistakes + len(found)
        print("planted:", family.name, "; ".join(found) or "told apart", flush=True)
    print(f"{mistakes} mistakes in {count} families of planted kernels", flush=True)
    return mistakes


def _planted(device: str) -> Iterator[Planted]:
    if device != "cpu":
        yield from by_triton()
    yield from families(device)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache-dir", type=Path)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--seconds", type=float, default=3600, help="nothing is begun after that")
    parser.add_argument("--skip", type=int, default=0, help="so many problems of the honest ones")
    parser.add_argument("--only", choices=("honest", "planted"))
    given = parser.parse_args()
    os.environ.setdefault("ROCM_TUI_TEMPLATE_BUDGET", "3")
    end, wrong = time.monotonic() + given.seconds, 0
    if given.only != "honest":
        wrong += planted(given.device, end)
    if given.only != "planted":
        with tempfile.TemporaryDirectory() as fresh:
            wrong += honest(given.device, end, given.cache_dir or Path(fresh), given.skip)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
