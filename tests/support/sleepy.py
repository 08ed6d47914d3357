"""A request for the process that benchmarks, which takes as long as it is told."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Sleepy:
    seconds: float

    def benchmark(self) -> float:
        time.sleep(self.seconds)
        return self.seconds
