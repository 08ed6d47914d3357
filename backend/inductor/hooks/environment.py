"""The environment of a hooked process: its run, the requested features, and the cache dir in which
it records.

Imports no torch: the program that starts others reads it too.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from backend.disk import layout as paths
from backend.inductor.torch.versions import tag_graphs
from backend.templates.triton.module_file import interpreter_on

RUN = "ROCM_TUI_RUN"
"""The environment variable with a JSON object, or a file's path. Its `run` names the run."""

TEMPLATES = "ROCM_TUI_TEMPLATES"
"""The environment variable that turns templates on (`1`, or the version that they must have). It
turns on the hooks too where we are installed."""
_ANY_VERSION = ("", "0", "1", "true", "yes", "on")

CHECK = "ROCM_TUI_CHECK"
"""The environment variable that compares every choice's output with ATen's (`1`), not only ours."""

SHARES = "ROCM_TUI_SHARES"
"""The environment variable for recording graphs: `0` off, `1` on; by default on under `run`."""

CAPTURE = "ROCM_TUI_CAPTURE"
"""The environment variable that stores the text of each graph for trials (`1`)."""

MEASURE = "ROCM_TUI_MEASURE_KERNELS"
"""The environment variable with the seconds for measuring each tuned Triton kernel."""

ALL_DEVICES = "ROCM_TUI_ALL_DEVICES"
"""The environment variable that stores one device's times for all of its kind (`1`)."""

OPTIONS = "ROCM_TUI_OPTIONS"
"""The environment variable with a JSON object: options of Inductor and the texts of their values,
which the program compiles with whatever it sets itself."""

LAUNCH_LOG = "ROCM_TUI_KERNELS"
"""The environment variable with the folder for the first launch of each Triton kernel."""
LAUNCHES_LOST = "the launches of Triton kernels are not written down"

_BACKEND = Path(__file__).parents[2]


def run_info(env: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """Return the run's description from `rocm-tui run`; empty without one, or if unreadable."""
    text = env.get(RUN, "")
    try:
        if text and not text.startswith("{"):
            text = Path(text).read_text()
    except (OSError, ValueError):
        return {}
    return _texts(text)


def options(env: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """Return the options of Inductor that the program compiles with; empty if unreadable."""
    return _texts(env.get(OPTIONS, ""))


def _texts(text: str) -> Mapping[str, str]:
    try:
        parsed = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return {str(k): str(v) for k, v in parsed.items()} if isinstance(parsed, dict) else {}


def is_program(env: Mapping[str, str] = os.environ) -> bool:
    """Return whether `rocm-tui run` started this process, or it is a rank, and not a helper."""
    if "--multiprocessing-fork" in sys.orig_argv:
        return False
    info = run_info(env)
    return bool(info) and (info.get("pid") == str(os.getppid()) or rank(env) is not None)


def is_compile_worker() -> bool:
    """Return whether this process only compiles for another one, started by Inductor itself."""
    return "".join(sys.argv[:1]).endswith("torch/_inductor/compile_worker/__main__.py")


def rank(env: Mapping[str, str] = os.environ) -> int | None:
    """Return the rank of this process in its job, from its environment."""
    for name in ("RANK", "LOCAL_RANK"):
        if env.get(name, "").isdecimal():
            return int(env[name])
    return None


def is_on(name: str, env: Mapping[str, str] = os.environ) -> bool:
    """Return whether a variable such as `TEMPLATES` is set, and not to 0."""
    return env.get(name, "") not in ("", "0")


def shares_wanted(env: Mapping[str, str] = os.environ) -> bool:
    """Return whether graphs and their calls are recorded."""
    text = env.get(SHARES, "")
    return text != "0" if text else RUN in env


def measure_seconds(env: Mapping[str, str] = os.environ) -> float:
    """Return the seconds for which each Triton kernel is measured; 0: none."""
    try:
        return max(0.0, min(float(env.get(MEASURE) or 0), 3600.0))
    except ValueError:
        return 0.0


def separate_graphs() -> None:
    """Keep graphs that may call our kernels separate from those of programs without templates.

    The tag depends on the templates' sources, on where graphs find our kernels, and on Triton's
    interpreter, which graphs compiled for it need.
    """
    interpreted = "-interpreted" if interpreter_on() else ""
    tag_graphs(f"rocm-tui-templates-{kernels_version()}{interpreted}")


def wanted_version(env: Mapping[str, str] = os.environ) -> str | None:
    """Return the version that `TEMPLATES` wants our kernels to have; None for any."""
    text = env.get(TEMPLATES, "")
    return None if text.lower() in _ANY_VERSION else text


def kernels_version() -> str:
    """Return a hash of the sources that decide what our kernels are and how graphs call them."""
    digest = hashlib.sha256()
    folders = (
        "templates",
        "toolchain/include",
        "inductor/hip",
        "inductor/triton",
        "inductor/torch",
    )
    for path in sorted(path for folder in folders for path in (_BACKEND / folder).rglob("*")):
        if path.suffix in (".py", ".jinja", ".h"):
            digest.update(f"{path.relative_to(_BACKEND)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


class CacheDirs:
    """The person's cache dir while the program works in a temporary one: the dir in force at
    `start`, and later changes.

    `torch._inductor.utils.fresh_cache`, and TORCHINDUCTOR_FORCE_DISABLE_CACHES through it, point
    TORCHINDUCTOR_CACHE_DIR at a new folder for a while, in which nobody looks for sessions or pins.
    Both clear all caches before and after, with a callback to us; so a folder that appears after
    such a clearing is temporary, and one that the program named otherwise is not.
    """

    def __init__(self, start: Path) -> None:
        self._home = start
        self._cleared: Path | None = None
        self._fresh: set[Path] = set()

    def cache_clear(self) -> None:
        """Note that torch cleared all caches: a temporary one begins or ends. Called by torch."""
        self.current()
        self._cleared = paths.cache_dir()

    def current(self) -> Path:
        """Return the cache dir for recording, in which pins are looked up last."""
        return self.places()[-1]

    def places(self) -> tuple[Path, ...]:
        """Return the cache dir in force, followed by the person's own if that one is temporary."""
        now = paths.cache_dir()
        if now == self._home:
            return (now,)
        if now not in self._fresh:
            if self._cleared is None or now == self._cleared:
                return (now,)  # named by the program
            self._fresh.add(now)
        return now, self._home


home = CacheDirs(paths.cache_dir())
"""The process's cache dirs, since the hooks were turned on."""
