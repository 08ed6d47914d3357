import sys, tempfile, time
from pathlib import Path
from tests.matrix.features import tried
from tests.matrix.lab import Lab

for python in sys.argv[1:]:
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        for name, reason in tried(Lab(python, Path(folder))):
            print(f"{time.monotonic()-begin:5.0f} s  {python}  {name}: {reason or 'yes'}", flush=True)
