"""The environment of a hooked process: its run, the features that are requested, and the cache dir
in which it records.

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
"""The variable: a JSON object, or the path of a file that holds one. Its `run` names the run."""

TEMPLATES = "ROCM_TUI_TEMPLATES"
"""The variable: `1` turns the templates on where the hooks are on."""

CHECK = "ROCM_TUI_CHECK"
"""The variable: `1` compares every choice's output with ATen's, not only that of ours."""

SHARES = "ROCM_TUI_SHARES"
"""The variable: `0` turns the recording of graphs off, `1` on; else it is on under `run`."""

CAPTURE = "ROCM_TUI_CAPTURE"
"""The variable: `1` keeps the text of each graph, for trials."""

MEASURE = "ROCM_TUI_MEASURE_KERNELS"
"""The variable: seconds for which each Triton kernel is measured again once it was tuned."""

ALL_DEVICES = "ROCM_TUI_ALL_DEVICES"
"""The variable: `1` keeps the times that one device measured for all devices of its kind."""

LAUNCH_LOG = "ROCM_TUI_KERNELS"
"""The variable: the folder to which each first launch of a Triton kernel is written."""
LAUNCHES_LOST = "the launches of Triton kernels are not written down"

_BACKEND = Path(__file__).parents[2]


def run_info(env: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """Return what `rocm-tui run` says about the run; empty outside of one, or if unreadable."""
    text = env.get(RUN, "")
    try:
        if text and not text.startswith("{"):
            text = Path(text).read_text()
        info = json.loads(text or "{}")
    except (OSError, ValueError):
        return {}
    return {str(k): str(v) for k, v in info.items()} if isinstance(info, dict) else {}


def is_program(env: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is the one that `rocm-tui run` started, or a rank, and not a helper of
    one."""
    if "--multiprocessing-fork" in sys.orig_argv:
        return False
    info = run_info(env)
    return bool(info) and (info.get("pid") == str(os.getppid()) or rank(env) is not None)


def is_compile_worker() -> bool:
    """Whether this process only compiles for another one, by Inductor's own doing."""
    return "compile_worker" in "".join(sys.argv[:1])


def rank(env: Mapping[str, str] = os.environ) -> int | None:
    """Return the rank of this process in its job, from its environment."""
    for name in ("RANK", "LOCAL_RANK"):
        if env.get(name, "").isdecimal():
            return int(env[name])
    return None


def is_on(name: str, env: Mapping[str, str] = os.environ) -> bool:
    """Whether a variable such as `TEMPLATES` is set, and not to 0."""
    return env.get(name, "") not in ("", "0")


def shares_wanted(env: Mapping[str, str] = os.environ) -> bool:
    """Whether graphs and their calls are recorded."""
    given = env.get(SHARES, "")
    return given != "0" if given else RUN in env


def measure_seconds(env: Mapping[str, str] = os.environ) -> float:
    """Return the seconds for which each Triton kernel is measured; 0: none is."""
    try:
        return max(0.0, min(float(env.get(MEASURE) or 0), 3600.0))
    except ValueError:
        return 0.0


def separate_graphs() -> None:
    """Keep graphs that may call our kernels apart from those of programs without templates.

    The tag changes with the templates' sources, with where graphs find our kernels, and where
    Triton's interpreter is on, which graphs for it need.
    """
    interpreted = "-interpreted" if interpreter_on() else ""
    tag_graphs(f"rocm-tui-templates-{_sources_hash()}{interpreted}")


def _sources_hash() -> str:
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


class Home:
    """Which cache dir is the person's, where the program works in a temporary one: that which was
    in force at `start`, and what became of it.

    `torch._inductor.utils.fresh_cache`, and TORCHINDUCTOR_FORCE_DISABLE_CACHES with it, point
    TORCHINDUCTOR_CACHE_DIR at a new folder for a while. Nobody looks there for sessions or pins.
    Both clear all caches before and after, which we are told; so a folder that came up after such a
    clearing is temporary, and one that the program named by itself is not.
    """

    def __init__(self, start: Path) -> None:
        self._home = start
        self._cleared: Path | None = None
        self._fresh: set[Path] = set()

    def cache_clear(self) -> None:
        """All caches of torch are cleared: a temporary one begins or ends. torch calls this."""
        self.current()
        self._cleared = paths.cache_dir()

    def current(self) -> Path:
        """Where to record, and where pins are looked for last."""
        return self.places()[-1]

    def places(self) -> tuple[Path, ...]:
        """The cache dir in force; after it the person's own, if that one is temporary."""
        now = paths.cache_dir()
        if now == self._home:
            return (now,)
        if now not in self._fresh:
            if self._cleared is None or now == self._cleared:
                return (now,)  # named by the program
            self._fresh.add(now)
        return now, self._home


home = Home(paths.cache_dir())
"""That of this process, as it was when the hooks were turned on."""
