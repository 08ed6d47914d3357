"""Measure what this machine can do at best, in a worker, for the roofline.

What was found holds while the program runs: it takes two seconds to measure again, and a file of it
would have to say of which machine it is, and would be believed long after that has changed.
"""

from __future__ import annotations

import socket
from asyncio import to_thread
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rocm_tui.errors import RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.report.roofline import Machine, Peak

if TYPE_CHECKING:
    from rocm_tui.screens.program import RocmTui

_PATIENCE = 120.0


async def measure_peak(app: RocmTui, machine: Machine) -> None:
    """Measure the peak of `machine`, which must be this one, and show it."""
    here = socket.gethostname()
    if machine.name == "cpu" and machine.host != here:
        where = f"on {machine.host}" if machine.host else "on a host that no source names"
        _refuse(app, f"These tunings were made {where}; a CPU is measured where it is.")
        return
    app.notify(f"Measuring the peak of {plain(machine.label)}: some two seconds.", markup=False)
    try:
        result = await to_thread(_run, app, "cpu" if machine.name == "cpu" else "cuda")
        found, peak = _read(result, here)
    except RocmTuiError as error:
        _refuse(app, str(error))
        return
    if found != machine:
        _refuse(app, f"This machine has a {found.label}; {machine.label} is measured where it is.")
        return
    app.peaks[machine] = peak
    update: Callable[[], None] | None = getattr(app.screen, "update", None)
    if update is not None:
        update()


def _run(app: RocmTui, device: str) -> Mapping[str, Any]:
    from rocm_tui.jobs import run_job
    from rocm_tui.python_env import find_python

    job = {"job": "peak", "device": device}
    python = find_python(app.python)
    return run_job(job, python=python, cache_dir=app.layout.root, timeout=_PATIENCE)


def _read(result: Mapping[str, Any], host: str) -> tuple[Machine, Peak]:
    """Which device was measured, and what it reached."""
    name = str(result["device"])
    machine = Machine(name, result["arch"], result["compute_units"])
    if name == "cpu":
        machine = Machine("cpu", host=host)
    source, threads = "measured here: square products, a copy", int(result["threads"])
    if name == "cpu":
        source += f"; {threads} thread{'s' * (threads != 1)}"
    return machine, Peak(machine.label, dict(result["tflops"]), float(result["gbs"]), source)


def _refuse(app: RocmTui, why: str) -> None:
    app.notify(plain(why), severity="error", markup=False, timeout=8)
