"""Real sessions of one small mm, each a process of its own with a cache dir of its own.

Reads commands from stdin, one a line, and answers each with a line: `tune FOLDER` compiles the mm
with autotuning on the cache dir FOLDER, `measure FOLDER` runs its choices again as `rocm-tui
measure` has its worker do. Each is done in a fork, so that PyTorch is imported once. Where a
folder's name ends in `-planted`, ATen's mm really works a fifth longer: it computes a fifth of the
rows twice. Its rival computes all of them twice: so ATen wins on every CPU, which it does not
against the C++ template.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

SHAPES = ((1920, 256), (256, 17))

SECONDS, ROUNDS = 10.0, 128
"""For measuring; it takes two seconds where nothing disturbs it."""


def plant() -> None:
    """Make ATen's mm slower wherever Inductor calls it; its name, and so its hash, stay."""
    import torch
    from torch._inductor.select_algorithm import extern_kernels

    @functools.wraps(torch.mm)
    def mm(a: Any, b: Any, **options: Any) -> Any:
        torch.mm(a[: len(a) // 5], b)
        return torch.mm(a, b, **options)

    extern_kernels.mm = mm


def mm_twice(a: Any, b: Any, out: Any) -> None:
    """The rival: it takes twice as long as ATen."""
    import torch

    torch.mm(a, b, out=out)
    torch.mm(a, b, out=out)


def warm(folder: str) -> None:
    """Import what a compile needs, and find out what this CPU can do."""
    import torch

    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    torch.set_num_threads(1)
    torch.compile(lambda a: a * 2 + 1)(torch.ones(64))


def enter(folder: str) -> None:
    """Make this process one that works on the cache dir `folder`."""
    import torch
    from torch._inductor import config

    os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
    if folder.endswith("-planted"):
        plant()
    config.max_autotune = True
    config.max_autotune_gemm_backends = "ATEN,CK"
    config.external_matmul = [mm_twice]
    config.compile_threads = 1
    torch.manual_seed(0)
    torch._dynamo.reset()


def tune() -> None:
    import torch

    a, b = (torch.randn(shape) for shape in SHAPES)
    torch.compile(lambda a, b: torch.mm(a, b))(a, b)


def measure() -> None:
    from backend.processes.shared import ChoiceMark
    from backend.wire.jobs import MeasureJob
    from backend.worker.jobs import measure as job

    (cache,) = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"], "cache").iterdir()
    ((inputs, precisions),) = json.loads(cache.read_text())["cache"]["mm"].items()
    hashes = tuple(precisions["highest"])
    asked = MeasureJob("mm", inputs, "highest", hashes, budget=SECONDS, rounds=ROUNDS)
    done = job.run(asked, lambda *_, **__: None, ChoiceMark())
    assert done.ok, done.reason


def main() -> int:
    """0 if all went well."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with TemporaryDirectory() as folder:
        warm(folder)
    failed = 0
    for line in sys.stdin:
        command, folder = line.split()
        pid = os.fork()
        if pid == 0:
            _leave({"tune": tune, "measure": measure}[command], folder)
        status = os.waitpid(pid, 0)[1]
        failed |= status
        print("failed" if status else "done", file=answers, flush=True)
    return 1 if failed else 0


def _leave(work: Callable[[], None], folder: str) -> NoReturn:
    """Do the work and end this process. Taking a copy of all of PyTorch apart takes seconds."""
    code = 1
    try:
        enter(folder)
        work()
        atexit._run_exitfuncs()
        code = 0
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
