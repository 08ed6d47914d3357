"""Check torch, devices, the cache dir, compilers and hooks: one check a line, with advice.

Every check is a function that yields `DoctorCheck`s and raises nothing of its own. Others
say what is in a mega-cache file, which pins it would hide, what it would overwrite.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from backend.cache.autotune import read_caches
from backend.counted import counted, noun
from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import MegaCacheInvalid, StoreError, brief
from backend.measure.devices import Readers, gpus
from backend.pins.leftovers import DAYS, leftovers
from backend.pins.store import PinStore
from backend.sharing.mega_cache import (
    Artifact,
    HiddenPin,
    MegaCache,
    Overwriting,
    configurations,
    hidden_pins,
    read_mega_cache,
)
from backend.toolchain import targets
from backend.wire.jobs import Environment, EnvironmentJob
from rocm_tui import __version__
from rocm_tui.actions.commands import ShellCommands
from rocm_tui.environment import find_python, hooks_forbidden
from rocm_tui.errors import RocmTuiError
from rocm_tui.jobs.limits import JobTimeout
from rocm_tui.jobs.worker import run_job
from rocm_tui.session import numbers as fmt
from rocm_tui.session.device_readings import device_in_words

PATIENCE = 120.0
"""Seconds that the Python with torch has to answer: a first import from a slow disk takes one
minute."""
_COMPILER_PATIENCE = 20.0

Verdict = Literal["ok", "note", "bad"]
"""`note` limits something and harms nothing; `bad` keeps the main job from working."""


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    name: str
    verdict: Verdict
    value: str
    advice: str = ""


def examine(layout: Layout, python: str | None, patience: float = PATIENCE) -> list[DoctorCheck]:
    """Yield all checks, those of the program first; torch has `patience` seconds to answer."""
    groups = {
        "rocm-tui": _program(),
        "terminal": _terminal(os.environ),
        "torch": _torch(layout, python, patience),
        "gpus": gpu_checks(),
        "cache dir": _cache(layout),
        "pins": _pins(layout),
        "inotify": _inotify(),
        "C++ compiler": _compilers(),
        "targets": _kernel_targets(),
    }
    return [check for name, checks in groups.items() for check in _guarded(name, checks)]


def _guarded(name: str, checks: Iterator[DoctorCheck]) -> Iterator[DoctorCheck]:
    """Yield the checks of a group; a file that cannot be read ends this group alone."""
    try:
        yield from checks
    except OSError as error:
        yield DoctorCheck(name, "bad", "cannot be checked", brief(str(error)))


def _program() -> Iterator[DoctorCheck]:
    yield DoctorCheck("rocm-tui", "ok", f"{__version__}, Python {platform.python_version()}")


def _terminal(env: Mapping[str, str]) -> Iterator[DoctorCheck]:
    term = env.get("TERM", "")
    if term in ("", "dumb"):
        advice = "`watch` needs a terminal that can move its cursor, such as xterm-256color"
        yield DoctorCheck("terminal", "note", f"TERM={term or 'unset'}", advice)
    else:
        yield DoctorCheck("terminal", "ok", f"TERM={term}")
    encoding = sys.getfilesystemencoding()
    if encoding.lower() != "utf-8":
        yield DoctorCheck(
            "encoding", "note", encoding, "set LANG=C.UTF-8, else × and µ do not show"
        )


_DRIVER_PATIENCE = 6.0
"""Seconds that drivers have to say how their GPUs are: from 5 on one counts as silent."""


def gpu_checks() -> Iterator[DoctorCheck]:
    """Check what each GPU reports without torch: what the strip in `watch` shows."""
    try:
        readers = Readers(gpus())
    except Exception as error:  # a library or a driver of any kind
        yield DoctorCheck("gpus", "note", "cannot be asked", brief(str(error)))
        return
    readers.ask()
    end = time.monotonic() + _DRIVER_PATIENCE
    while any(gpu.reading is None and not gpu.why for gpu in readers.seen()):
        if time.monotonic() > end:
            break
        time.sleep(0.02)
    for gpu in readers.seen():
        value, missing = device_in_words(gpu)
        yield DoctorCheck(f"gpu {gpu.device.label}", "note" if missing else "ok", value, missing)
    readers.stop()


def _torch(layout: Layout, wanted: str | None, patience: float) -> Iterator[DoctorCheck]:
    try:
        python = find_python(wanted)
    except RocmTuiError as error:
        yield DoctorCheck("torch", "bad", "not found", str(error))
        return
    yield DoctorCheck("python", "ok", python)
    try:
        answer = run_job(
            EnvironmentJob(fit=True), python=python, cache_dir=layout.root, timeout=patience
        )
    except JobTimeout:
        advice = f"{python} did not say within {patience:.0f} s which torch it has, and was ended"
        yield DoctorCheck("torch", "bad", "does not answer", advice)
        return
    except RocmTuiError as error:
        yield DoctorCheck("torch", "bad", "does not start", str(error))
        return
    yield from environment_checks(answer)


def environment_checks(answer: Environment) -> Iterator[DoctorCheck]:
    """Check the torch that answered, its device, and what works with it."""
    runtime = answer.hip or answer.cuda
    kind = "HIP " if answer.hip else "CUDA "
    yield DoctorCheck("torch", "ok", f"{answer.torch}, {kind + runtime if runtime else 'CPU only'}")
    yield _device(answer)
    for line in answer.recommended:
        name, _, why = line.partition(": ")
        yield DoctorCheck("setting", "note", name, why)
    if off := answer.hooks_off:
        advice = "`run` works without recording; `watch` and `pin` work on what torch writes itself"
        yield DoctorCheck("hooks", "note", f"off: {off}", advice)
    elif forbidden := hooks_forbidden(os.environ):
        yield DoctorCheck("hooks", "bad", "kept out", forbidden)
    else:
        yield DoctorCheck("hooks", "ok", "fit this torch")
    if off := answer.templates_off:
        yield DoctorCheck(
            "templates", "note", f"off: {off}", "`run --templates` offers none of ours"
        )
    else:
        yield DoctorCheck("templates", "ok", "fit this torch")
    yield _triton_target(answer)


def _device(answer: Environment) -> DoctorCheck:
    units = f", {answer.compute_units} compute units" if answer.compute_units else ""
    arch = f" ({answer.arch})" if answer.arch else ""
    value = f"{answer.device}{arch}{units}"
    if answer.gpu:
        return DoctorCheck("device", "ok", value)
    return DoctorCheck("device", "note", value, "no GPU is visible to torch; tunings are the CPU's")


def _triton_target(answer: Environment) -> DoctorCheck:
    """Check the target of our Triton templates in the Python that has torch."""
    if off := answer.triton_off:
        return DoctorCheck("target triton", "note", "off", off)
    return DoctorCheck(f"target triton:{answer.triton_target}", "ok", f"Triton {answer.triton}")


def _cache(layout: Layout) -> Iterator[DoctorCheck]:
    if not layout.root.exists():
        advice = "it appears with the first torch.compile that tunes"
        yield DoctorCheck("cache dir", "note", f"{layout.root} does not exist yet", advice)
        return
    try:
        safe.check_folder(layout.root, layout.home)
        writable = os.access(layout.root, os.W_OK | os.X_OK)
    except StoreError as error:
        yield DoctorCheck("cache dir", "bad", str(layout.root), str(error))
    else:
        yield (
            DoctorCheck("cache dir", "ok", str(layout.root))
            if writable
            else DoctorCheck(
                "cache dir", "bad", f"{layout.root} is read-only", "pins need to write"
            )
        )
    caches, problems = read_caches(layout)
    entries = sum(len(cache.entries) for cache in caches)
    yield DoctorCheck("tunings", "ok", f"{entries} in {counted(len(caches), 'cache file')}")
    for problem in problems:
        yield DoctorCheck("tunings", "bad", problem.source, problem.what)
    for name, folder in (("fxgraph", layout.fxgraph), ("aotautograd", layout.aotautograd)):
        graphs = sum(1 for path in folder.glob("**/*") if path.is_file())
        yield DoctorCheck(f"{name} cache", "ok", counted(graphs, "compiled graph"))
    logs = list(layout.sessions.glob("*.jsonl"))
    yield DoctorCheck("sessions", "ok", counted(len(logs), "event log"))
    yield from leftover_checks(layout)


def leftover_checks(layout: Layout) -> Iterator[DoctorCheck]:
    """Check for old files that `prune` would remove."""
    with contextlib.suppress(StoreError):  # the cache dir's own check says it
        files = leftovers(layout, time.time())
        if files.old:
            value = f"{len(files.old)} cut off, or not used for {DAYS:g} days, "
            value += fmt.size(files.size)
            prune = ShellCommands(layout).line("prune", "--yes")
            yield DoctorCheck("old files", "note", value, f"`{prune}` removes them")


def _pins(layout: Layout) -> Iterator[DoctorCheck]:
    try:
        statuses = PinStore(layout).status()
    except StoreError as error:
        yield DoctorCheck("pins", "bad", str(layout.pins), str(error))
        return
    yield DoctorCheck("pins", "ok", f"{len(statuses):,}")
    for status in statuses:
        if status.state != "active":
            drifted = status.state == "drifted"
            advice = f"`{ShellCommands(layout).reapply()}`" if drifted else status.detail
            yield DoctorCheck("pins", "note", f"{status.pin.id} is {status.state}", advice)


def _inotify() -> Iterator[DoctorCheck]:
    limit = Path("/proc/sys/fs/inotify/max_user_watches")
    if not limit.exists():
        yield DoctorCheck(
            "inotify", "note", "not on this system", "`watch` polls the files instead"
        )
        return
    yield DoctorCheck(
        "inotify", "ok", counted(int(limit.read_text()), "watch", "watches") + " allowed"
    )


def _compilers() -> Iterator[DoctorCheck]:
    compiler = os.environ.get("CXX", "g++")
    path = shutil.which(compiler)
    if path is None:
        advice = "Inductor compiles its CPU kernels with it; install g++ or set CXX"
        yield DoctorCheck("C++ compiler", "note", f"{compiler} is missing", advice)
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
        yield DoctorCheck("C++ compiler", "note", f"{compiler} does not answer", advice)
        return
    except OSError as error:
        advice = f"`{path}` cannot be run: {error.strerror}; set CXX to a compiler"
        yield DoctorCheck("C++ compiler", "note", f"{compiler} is no program", advice)
        return
    first = (version.stdout or version.stderr).partition("\n")[0]
    yield DoctorCheck("C++ compiler", "ok", first or path)


def _kernel_targets() -> Iterator[DoctorCheck]:
    """Check the targets that our own templates can be compiled for."""
    for target in targets.report():
        name = f"target {target.target}"
        if target.available:
            yield DoctorCheck(name, "ok", f"{target.compiler} {target.version}".strip())
        else:
            yield DoctorCheck(name, "note", "no compiler", str(target.reason))


_KINDS = {
    "inductor": "compiled graph",
    "aot_autograd": "companion of a graph",
    "autotune": "pointwise configuration",
    "pgo": "profile of dynamic shapes",
    "precompile": "precompiled function",
}
"""The types of artifacts that PyTorch writes, in words."""


@dataclass(frozen=True, slots=True)
class Examined:
    """The checks of one mega-cache file, and what they are based on."""

    path: str
    checks: list[DoctorCheck]
    mega: MegaCache | None = None
    hidden: Sequence[HiddenPin] = ()
    overwritten: Mapping[str, Overwriting] = field(default_factory=dict)


def examine_mega_cache(path: Path, layout: Layout) -> Examined:
    try:
        mega = read_mega_cache(path)
        hidden = hidden_pins(mega, layout)
        overwritten = {a.key: becomes for a, becomes in configurations(mega, layout)}
    except MegaCacheInvalid as error:
        advice = "write the bytes of torch.compiler.save_cache_artifacts()[0] to a file"
        return Examined(str(path), [DoctorCheck("mega-cache", "bad", str(error), advice)])
    except StoreError as error:
        return Examined(str(path), [DoctorCheck("pins", "bad", str(layout.pins), str(error))])
    checks = [
        DoctorCheck("mega-cache", "ok", f"{path}: {fmt.size(mega.size)}, its checksum is right"),
        *_contents(mega.artifacts),
        *_dangers(mega.artifacts),
        *_overwriting(overwritten),
        *_hiding(hidden, ShellCommands(layout)),
    ]
    return Examined(str(path), checks, mega, hidden, overwritten)


def _contents(artifacts: Sequence[Artifact]) -> Iterator[DoctorCheck]:
    if not artifacts:
        yield DoctorCheck("artifacts", "note", "none")
    for kind in dict.fromkeys(artifact.type for artifact in artifacts):
        mine = [a for a in artifacts if a.type == kind and a.loaded]
        size = fmt.size(sum(artifact.size for artifact in mine))
        name = brief(kind, 20)
        what = _KINDS.get(kind)
        if what is None:
            advice = "PyTorch refuses a file with a type that it does not know"
            yield DoctorCheck(name, "note", f"{len(mine)} of an unknown type, {size}", advice)
        else:
            many = what.replace(" of", "s of", 1) if " of" in what else ""
            yield DoctorCheck(name, "ok", f"{counted(len(mine), what, many)}, {size}")
        passed_over = sum(artifact.type == kind for artifact in artifacts) - len(mine)
        if passed_over:
            value = f"{passed_over} more that PyTorch passes over when it loads the file"
            advice = "it was saved twice by one process; save once, after all is compiled"
            yield DoctorCheck(name, "note", value, advice)


def _dangers(artifacts: Sequence[Artifact]) -> Iterator[DoctorCheck]:
    odd = [artifact for artifact in artifacts if artifact.leads_out]
    if odd:
        value = counted(len(odd), "name")
        value += f" that PyTorch never gives, such as {brief(odd[0].key, 60)}"
        advice = "loading it may write outside of the cache dir: do not load it"
        yield DoctorCheck("names", "bad", value, advice)


def _overwriting(overwritten: Mapping[str, Overwriting]) -> Iterator[DoctorCheck]:
    if overwritten:
        counts = Counter(overwritten.values())
        value = f"{counts['new']} new, {counts['same']} as here, {counts['other']} would replace"
        others = noun(counts["other"], "another", "others")
        yield DoctorCheck(
            "configurations", "note" if counts["other"] else "ok", f"{value} {others}"
        )


def _hiding(hidden: Sequence[HiddenPin], commands: ShellCommands) -> Iterator[DoctorCheck]:
    for key, pin in {hiding.pin.key: hiding.pin for hiding in hidden}.items():
        mine = [hiding for hiding in hidden if hiding.pin.key == key]
        surely = [hiding for hiding in mine if hiding.verdict == "other"]
        count = counted(len(surely or mine), "graph")
        value = f"{pin.id} ({brief(pin.label, 40)}) {'is' if surely else 'may be'} hidden"
        again = commands.reapply()
        advice = f"after loading it, run `{again}`; or save it again under the pin"
        if not surely:
            advice = (
                f"the text does not name their choice; `{commands.line('verify')}` finds it, "
                "after loading"
            )
        verdict: Verdict = "bad" if surely else "note"
        yield DoctorCheck(
            "pin", verdict, f"{value} by {count}: {mine[0].artifact.key[:12]}", advice
        )
