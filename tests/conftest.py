"""What holds for all tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

# Tests run side by side: kernels whose threads wait for each other's core take a thousand times
# as long. Children inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Each process would compile and load a library for each vector extension that the CPU has, only to
# see whether that works: two seconds.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

# Inductor compiles the same kernels for each fresh cache dir: they are compiled once.
os.environ["PATH"] = f"{Path(__file__).parent / 'compilers'}{os.pathsep}{os.environ['PATH']}"
os.environ["TEST_PYTHON"] = sys.executable
