"""Start a worker in a Python that has none of our packages: `python rocm_tui_worker.py FOLDER`.

Run as a script, so that the first place where Python looks for modules is this folder, and not
the current one. FOLDER is our package `backend`.
"""

import importlib
import runpy
import sys

if __name__ == "__main__":
    importlib.import_module("rocm_tui_autoload").provide(sys.argv.pop(1), first=True)
    runpy.run_module("backend.worker", run_name="__main__", alter_sys=True)
