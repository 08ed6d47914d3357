"""Measure what this machine can do at best, in a worker, for the roofline.

What was found holds while the program runs: it takes two seconds to measure again, and a file of it
would have to say of which machine it is, and would be believed long after that has changed.
"""

from __future__ import annotations

import socket

from backend.disk.layout import Layout
from backend.wire.jobs import PeakJob, PeakResult
from rocm_tui.environment import find_python
from rocm_tui.errors import RocmTuiError
from rocm_tui.jobs.worker import run_job
from rocm_tui.report.roofline import Peak, TunedDevice

_PATIENCE = 120.0


class PeakElsewhere(RocmTuiError):
    """The machine is not the one that we run on, so its peak cannot be measured here."""


def require_here(machine: TunedDevice) -> None:
    """Raises PeakElsewhere for a CPU of another host; which GPU there is only a worker tells."""
    if machine.name == "cpu" and machine.host != socket.gethostname():
        where = f"on {machine.host}" if machine.host else "on a host that no source names"
        raise PeakElsewhere(f"These tunings were made {where}; a CPU is measured where it is.")


def measure_machine(machine: TunedDevice, layout: Layout, python: str | None) -> Peak:
    """The peak of `machine`. Raises PeakElsewhere, NoTorchPython and JobError."""
    require_here(machine)
    job = PeakJob("cpu" if machine.name == "cpu" else "cuda")
    result = run_job(job, python=find_python(python), cache_dir=layout.root, timeout=_PATIENCE)
    here, peak = _read(result)
    if here != machine:
        raise PeakElsewhere(
            f"This machine has a {here.label}; {machine.label} is measured where it is."
        )
    return peak


def _read(result: PeakResult) -> tuple[TunedDevice, Peak]:
    """Which device was measured, and what it reached."""
    machine = TunedDevice(result.device, result.arch, result.compute_units)
    source = "measured here: square products, a copy"
    if result.device == "cpu":
        machine = TunedDevice("cpu", host=socket.gethostname())
        source += f"; {result.threads} thread{'s' * (result.threads != 1)}"
    return machine, Peak(machine.label, result.tflops, result.gbs, source)
