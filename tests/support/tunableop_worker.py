"""A worker whose PyTorch has below `torch.cuda.tunable` what a build for a GPU has: its switches,
and a row for each product that it is given. It multiplies nothing: a product with an M of 13 ends
the process; one of 99 makes the file $HANGS and never comes back.

    python tunableop_worker.py -c CODE | ENTRY WORDS...
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import time
from pathlib import Path
from typing import Any


def main(words: list[str]) -> None:
    if words[0] == "-c":  # whether this Python has torch
        exec(words[1], {"__name__": "__main__"})
        return
    below()
    sys.argv = words
    sys.path.insert(0, str(Path(words[0]).parent))
    runpy.run_path(words[0], run_name="__main__")


def below() -> None:
    import torch

    on: dict[str, bool] = {}
    rows: list[tuple[str, str, str, float]] = []

    def tuned(line: str, device: int) -> None:
        op, params = line.strip().split(",")
        if "_13_" in params:
            os.kill(os.getpid(), signal.SIGSEGV)
        if "_99_" in params:
            Path(os.environ["HANGS"]).touch()
            time.sleep(600)
        rows.append((op, params, "Gemm_Hipblaslt_1", 0.5))

    functions: dict[str, Any] = {
        "_cuda_tunableop_enable": lambda value: on.update(enable=value),
        "_cuda_tunableop_is_enabled": lambda: on.get("enable", False),
        "_cuda_tunableop_tuning_enable": lambda value: on.update(tuning=value),
        "_cuda_tunableop_tuning_is_enabled": lambda: on.get("tuning", False),
        "_cuda_record_untuned_enable": lambda value: None,
        "_cuda_tunableop_set_filename": lambda name, ordinal: None,
        "_cuda_tunableop_get_results": lambda: tuple(rows),
        "_cuda_tunableop_get_validators": lambda: (("PT_VERSION", torch.__version__),),
    }
    for name, function in functions.items():
        setattr(torch._C, name, function)
    cuda: Any = torch.cuda
    cuda.tunable._process_single_offline_gemm = tuned
    cuda.is_available = lambda: True
    cuda.current_device = lambda: 0
    cuda.synchronize = lambda: None


if __name__ == "__main__":
    main(sys.argv[1:])
