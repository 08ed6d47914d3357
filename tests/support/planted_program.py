"""A program whose steps take longer where its cache dir holds a pin, or not: by argument.

python planted_program.py WITH WITHOUT [steps|graphs|none|burst|crash|child|hang]: milliseconds a
step. With `child` it starts one that goes on, and adds its pid to the file $CHILDREN.
Each line says when it should have been printed, so that a test need not trust the clock.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

pinned, plain, how = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
cache = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
numbers = (cache / "cache" / "hash").read_text()
raised = "e+" in numbers or any(len(word) > 9 for word in numbers.split() if word[0].isdigit())
seconds = (pinned if raised else plain) / 1e3
(cache / "aa").mkdir(exist_ok=True)
(cache / "aa" / "caaa.py").write_text(f"# {cache}\ncode = {raised if how != 'same' else 0}\n")
if how == "graphs":
    (cache / "fxgraph" / "ab").mkdir(parents=True, exist_ok=True)
if how == "child":
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    with Path(os.environ["CHILDREN"]).open("a") as children:
        print(child.pid, file=children)
if how == "hang":
    print("begun", flush=True)
    time.sleep(600)
if how == "burst":
    print("step\n" * 20, end="", flush=True)
    sys.exit()
print("loading")
for step in range(12):
    if how != "none":
        line = f"step {step} loss 0.1 at {step * seconds:.3f} s"
        print(line, file=sys.stderr if step % 2 else sys.stdout)
if how == "crash":
    raise RuntimeError("out of luck")
