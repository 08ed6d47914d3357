"""`python -m backend.worker`: jobs on stdin, events on stdout, what libraries print on stderr."""

from __future__ import annotations

import sys

from backend.processes.supervisor import apart
from backend.worker.loop import main

if __name__ == "__main__":
    sys.exit(apart(main))
