"""What is found, what is missing, what to do about it: one check a line.

Every check is a function that returns `Check`s and raises nothing of its own.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from backend.cache.autotune import read_caches
from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import StoreError
from backend.toolchain import targets
from backend.wire.jobs import Environment, EnvironmentJob
from rocm_tui import __version__
from rocm_tui.actions.pin import pin_states
from rocm_tui.environment import find_python, hooks_forbidden
from rocm_tui.errors import RocmTuiError
from rocm_tui.jobs.errors import JobTimeout
from rocm_tui.jobs.worker import run_job

PATIENCE = 120.0
"""Seconds that the Python with torch has to answer: a first import from a slow disk takes one
minute."""
_COMPILER_PATIENCE = 20.0

Verdict = Literal["ok", "note", "bad"]
"""`note` limits something and harms nothing; `bad` keeps the main job from working."""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    verdict: Verdict
    value: str
    advice: str = ""


def examine(layout: Layout, python: str | None, patience: float = PATIENCE) -> list[Check]:
    """All checks, those of the program first. Torch has so many seconds to answer."""
    return [
        *_program(),
        *_terminal(os.environ),
        *_torch(layout, python, patience),
        *_cache(layout),
        *_pins(layout),
        *_inotify(),
        *_compilers(),
        *_kernel_targets(),
    ]


def _program() -> Iterator[Check]:
    yield Check("rocm-tui", "ok", f"{__version__}, Python {platform.python_version()}")


def _terminal(env: Mapping[str, str]) -> Iterator[Check]:
    term = env.get("TERM", "")
    if term in ("", "dumb"):
        advice = "`watch` needs a terminal that can move its cursor, such as xterm-256color"
        yield Check("terminal", "note", f"TERM={term or 'unset'}", advice)
    else:
        yield Check("terminal", "ok", f"TERM={term}")
    encoding = sys.getfilesystemencoding()
    if encoding.lower() != "utf-8":
        yield Check("encoding", "note", encoding, "set LANG=C.UTF-8, else × and µ do not show")


def _torch(layout: Layout, wanted: str | None, patience: float) -> Iterator[Check]:
    try:
        python = find_python(wanted)
    except RocmTuiError as error:
        yield Check("torch", "bad", "not found", str(error))
        return
    yield Check("python", "ok", python)
    try:
        answer = run_job(
            EnvironmentJob(fit=True), python=python, cache_dir=layout.root, timeout=patience
        )
    except JobTimeout:
        advice = f"{python} did not say within {patience:.0f} s which torch it has, and was ended"
        yield Check("torch", "bad", "does not answer", advice)
        return
    except RocmTuiError as error:
        yield Check("torch", "bad", "does not start", str(error))
        return
    runtime = answer.hip or answer.cuda
    kind = "HIP " if answer.hip else "CUDA "
    yield Check("torch", "ok", f"{answer.torch}, {kind + runtime if runtime else 'CPU only'}")
    yield _device(answer)
    if off := answer.hooks_off:
        advice = "`run` works without recording; `watch` and `pin` work on what torch writes itself"
        yield Check("hooks", "note", f"off: {off}", advice)
    elif forbidden := hooks_forbidden(os.environ):
        yield Check("hooks", "bad", "kept out", forbidden)
    else:
        yield Check("hooks", "ok", "fit this torch")
    if off := answer.templates_off:
        yield Check("templates", "note", f"off: {off}", "`run --templates` offers none of ours")
    else:
        yield Check("templates", "ok", "fit this torch")
    yield _triton_target(answer)


def _device(answer: Environment) -> Check:
    units = f", {answer.compute_units} compute units" if answer.compute_units else ""
    arch = f" ({answer.arch})" if answer.arch else ""
    value = f"{answer.device}{arch}{units}"
    if answer.gpu:
        return Check("device", "ok", value)
    return Check("device", "note", value, "no GPU is visible to torch; tunings are the CPU's")


def _triton_target(answer: Environment) -> Check:
    """What our Triton template can be made for, in the Python that has torch."""
    if off := answer.triton_off:
        return Check("target triton", "note", "off", off)
    return Check(f"target triton:{answer.triton_target}", "ok", f"Triton {answer.triton}")


def _cache(layout: Layout) -> Iterator[Check]:
    if not layout.root.exists():
        advice = "it appears with the first torch.compile that tunes"
        yield Check("cache dir", "note", f"{layout.root} does not exist yet", advice)
        return
    try:
        safe.check_folder(layout.root, layout.home)
        writable = os.access(layout.root, os.W_OK | os.X_OK)
    except StoreError as error:
        yield Check("cache dir", "bad", str(layout.root), str(error))
    else:
        yield (
            Check("cache dir", "ok", str(layout.root))
            if writable
            else Check("cache dir", "bad", f"{layout.root} is read-only", "pins need to write")
        )
    caches, problems = read_caches(layout)
    entries = sum(len(cache.entries) for cache in caches)
    yield Check("tunings", "ok", f"{entries} in {len(caches)} cache file(s)")
    for problem in problems:
        yield Check("tunings", "bad", problem.source, problem.what)
    for name, folder in (("fxgraph", layout.fxgraph), ("aotautograd", layout.aotautograd)):
        graphs = sum(1 for path in folder.glob("**/*") if path.is_file())
        yield Check(f"{name} cache", "ok", f"{graphs} compiled graph(s)")
    logs = list(layout.sessions.glob("*.jsonl"))
    yield Check("sessions", "ok", f"{len(logs)} event log(s)")


def _pins(layout: Layout) -> Iterator[Check]:
    try:
        statuses = pin_states(layout)
    except StoreError as error:
        yield Check("pins", "bad", str(layout.pins), str(error))
        return
    yield Check("pins", "ok", str(len(statuses)))
    for status in statuses:
        if status.state != "active":
            advice = "`rocm-tui pins --reconcile`" if status.state == "drifted" else status.detail
            yield Check("pins", "note", f"{status.pin.id} is {status.state}", advice)


def _inotify() -> Iterator[Check]:
    limit = Path("/proc/sys/fs/inotify/max_user_watches")
    if not limit.exists():
        yield Check("inotify", "note", "not on this system", "`watch` polls the files instead")
        return
    yield Check("inotify", "ok", f"{limit.read_text().strip()} watches allowed")


def _compilers() -> Iterator[Check]:
    compiler = os.environ.get("CXX", "g++")
    path = shutil.which(compiler)
    if path is None:
        advice = "Inductor compiles its CPU kernels with it; install g++ or set CXX"
        yield Check("C++ compiler", "note", f"{compiler} is missing", advice)
        return
    try:
        version = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMPILER_PATIENCE,
        )
    except subprocess.TimeoutExpired:
        advice = f"`{path} --version` did not end within {_COMPILER_PATIENCE:.0f} s"
        yield Check("C++ compiler", "note", f"{compiler} does not answer", advice)
        return
    first = (version.stdout or version.stderr).partition("\n")[0]
    yield Check("C++ compiler", "ok", first or path)


def _kernel_targets() -> Iterator[Check]:
    """What our own templates can be compiled for."""
    for target in targets.report():
        name = f"target {target.target}"
        if target.available:
            yield Check(name, "ok", f"{target.compiler} {target.version}".strip())
        else:
            yield Check(name, "note", "no compiler", str(target.reason))
