"""`gpus_program.py ROOT WORDS...`: the program where the GPUs are those of a tree of files."""

from __future__ import annotations

import sys
from pathlib import Path

from backend.measure import devices
from rocm_tui.cli.entry import main

if __name__ == "__main__":
    root, *words = sys.argv[1:]
    real = devices.gpus
    devices.gpus = lambda: real(Path(root))
    sys.exit(main(words))
