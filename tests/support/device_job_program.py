"""A worker's job on one made-up GPU that names the choice of another one.

`python -m tests.support.device_job_program KIND ASKED OWN`: products are offered on the GPU ASKED,
then the worker uses the GPU OWN. A line of stdout for each choice that was offered there:
`{"asked": hash, "job": the hash that the job got, "offered": [hash, ...], "answer": hash}`. Nothing
is run: the compile ends where the choices are offered.
"""

from __future__ import annotations

import contextlib
import json
import sys

import torch
from torch._inductor import config
from torch._subclasses.fake_tensor import FakeTensorMode

from backend.inductor.torch import tuning as torch_api
from backend.model.problem import TuningKey
from backend.processes.shared import ChoiceMark
from backend.wire.jobs import MeasureJob, MeasureResult, VerifyJob, VerifyResult
from backend.worker.boundary import run_here, why_not_offered
from backend.worker.jobs.verify import ProbeSelector
from tests.support.device_program import make_up_h100s, tensor
from tests.support.made_up_gpu import make_up_a_gpu

SETTINGS = {"max_autotune": True, "max_autotune_gemm_backends": "ATEN,TRITON"}


def offered(index: int) -> tuple[TuningKey, list[str]]:
    """What the GPU `index` is offered for a product, as the selector of `verify` sees it."""
    torch.cuda.current_device = lambda: index
    torch._dynamo.reset()
    selector = ProbeSelector()
    torch_api.set_selector(selector)
    gpu = f"cuda:{index}"
    with FakeTensorMode(), config.patch(SETTINGS), contextlib.suppress(Exception):
        # The selector refuses to benchmark, which ends the compile.
        torch.compile(torch.mm)(tensor(gpu, 256, 128), tensor(gpu, 128, 512))
    ((key, names),) = selector.sight.offered.items()
    return key, list(names)


def tell(what: str, **fields: object) -> None:
    """Nobody listens."""


def main(asked_index: int, own_index: int) -> None:
    key, asked = offered(asked_index)
    own_key, own = offered(own_index)
    assert own_key == key
    names = (key.op, key.inputs, key.precision)
    measured: list[str] = []

    def measure(job: MeasureJob, tell: object, mark: ChoiceMark) -> MeasureResult:
        measured.extend(job.hashes)
        return MeasureResult(True, missing=job.hashes)

    def verify(job: VerifyJob, tell: object, mark: ChoiceMark) -> VerifyResult:
        reason = "" if job.hash in own else why_not_offered(job.hash, own) or "unknown"
        return VerifyResult(not reason, reason, kernel=job.hash.partition("-")[0], hash=job.hash)

    answer = run_here(measure, MeasureJob(*names, tuple(asked)), tell, ChoiceMark())
    for at, name in enumerate(asked):
        verified = run_here(verify, VerifyJob(*names, name), tell, ChoiceMark())
        line = {
            "asked": name,
            "job": measured[at],
            "offered": own,
            "answer": answer.missing[at],
            "verified": [verified.ok, verified.hash, verified.reason],
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    kind, first, second = sys.argv[1:]
    make_up_h100s() if kind == "cuda" else make_up_a_gpu()
    torch.cuda.device_count = lambda: 8
    torch.cuda.is_available = lambda: True
    config.compile_threads = 1
    main(int(first), int(second))
