"""The first module of the command `rocm-tui`, which puts our own modules before the person's.

PYTHONPATH and the current folder belong to the person's programs: a `backend`, `json.py` or
`rocm_tui.py` there must not be imported in place of ours or Python's. The name of this module is
its protection, as nothing else is imported before the order of folders is right. Processes of ours
run it by its path, `python rocm_tui_entry.py WORDS`.
"""

import os
import sys


def main() -> int:
    """Run one command and return its exit code."""
    sys.path[:] = reordered(sys.path, os.environ.get("PYTHONPATH", ""))
    try:
        from rocm_tui.cli.entry import main as run_command
    except KeyboardInterrupt:
        return 130  # as everywhere for Ctrl-C

    return run_command()


def reordered(folders: list[str], python_path: str) -> list[str]:
    """Return the folders of modules with the person's last: those of PYTHONPATH, and the first,
    which is the current folder or that of a script. They stay, since torch may be there."""
    root = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - may be shadowed
    theirs = {*folders[:1], *map(os.path.abspath, filter(None, python_path.split(os.pathsep)))}
    ours = [folder for folder in folders if folder not in theirs]
    first = [] if root in ours else [root]
    return [*first, *ours, *(folder for folder in folders if folder in theirs - {root})]


if __name__ == "__main__":
    sys.exit(main())
