"""What holds for all tests."""

from __future__ import annotations

import os

# Tests run side by side: kernels whose threads wait for each other's core take a thousand times
# as long. Children inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")
