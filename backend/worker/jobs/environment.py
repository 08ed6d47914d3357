"""The torch of this environment, and the devices that it sees.

Whether the hooks and our templates fit is checked by compiling one small product in Inductor. The
compile ends when the selector has answered: nothing is benchmarked or recorded, and no kernel is
built.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from backend.inductor.hooks.backends import compilers_for, recommended, this_machine
from backend.inductor.hooks.recording import Recorder
from backend.inductor.hooks.selector import Selector
from backend.inductor.hooks.templates import offer, schedule
from backend.inductor.sampling import pci_address
from backend.inductor.torch import tuning as torch_api
from backend.inductor.torch import versions
from backend.inductor.triton import template as triton_template
from backend.model.events import ChoiceSelected, Event, TuningStarted
from backend.processes.shared import ChoiceMark
from backend.wire.jobs import Environment, EnvironmentJob
from backend.worker.protocol import ReportProgress
from backend.worker.rebuilt import RebuiltProgram, SelectionDone, compile_asking
from backend.worker.retuning import NoPins


def run(job: EnvironmentJob, progress: ReportProgress, mark: ChoiceMark) -> Environment:
    fitting = examine_fit() if job.fit else HooksFit()
    device = torch_api.device_facts()
    gpu = bool(torch.cuda.is_available())
    place = torch.device("cuda", torch.cuda.current_device()) if gpu else torch.device("cpu")
    triton = triton_template.examine_triton(place)
    off = triton.reason if isinstance(triton, triton_template.TritonUnavailable) else ""
    return Environment(
        torch=str(torch.__version__),
        hip=torch.version.hip,
        cuda=torch.version.cuda,
        triton=_triton(),
        triton_target=None if off else str(triton),
        triton_off=off,
        hooks_off=fitting.hooks,
        templates_off=fitting.templates,
        gpu=gpu,
        device=device.name,
        arch=device.arch,
        compute_units=device.compute_units,
        system_hash=torch_api.system_hash(),
        python=f"cp{sys.version_info[0]}{sys.version_info[1]}",
        torch_key=torch_api.torch_key() if job.build else None,
        compilers=_compilers(device.arch) if job.compilers else {},
        bus=pci_address(torch.cuda.get_device_properties(place)) if gpu else None,
        recommended=recommended(this_machine()) if job.fit else (),
        alike=() if job.alike_to is None else tuple(torch_api.devices_alike(job.alike_to)),
    )


def _compilers(arch: str | None) -> dict[str, str]:
    return compilers_for(arch) if torch.version.hip and torch.cuda.is_available() and arch else {}


def _triton() -> str | None:
    """Return the version of Triton, if this Python has it."""
    try:
        import triton  # optional, and slow to load
    except ImportError:
        return None
    return str(triton.__version__)


@dataclass(frozen=True, slots=True)
class HooksFit:
    """Why the hooks, or our templates, do not work; empty if they do."""

    hooks: str = ""
    templates: str = ""


class _EventCollector(Recorder):
    """A recorder that keeps the events in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []

    def next_number(self) -> int:
        return 1

    def write(self, event: Event) -> None:
        self.events.append(event)


class _Trial(Selector):
    """Our selector for a single selection. `templates` is why our choices are not offered."""

    def __init__(self) -> None:
        self.heard = _EventCollector()
        super().__init__(self.heard, NoPins())
        self.answered = False
        self.templates = ""

    def __call__(
        self, name: str, choices: Any, input_nodes: Any, layout: Any, *args: Any, **kwargs: Any
    ) -> Any:
        self.templates = _why_not_offered(name, choices, input_nodes, layout)
        torch_api.tuning_key(name, input_nodes, layout, kwargs)  # its error is reported in full
        super().__call__(name, choices[:1], input_nodes, layout, *args, **kwargs)
        self.answered = True
        raise SelectionDone


def examine_fit() -> HooksFit:
    """Make Inductor select for one small product; takes seconds, and finishes no compile."""
    version = str(torch.__version__)
    if not versions.is_supported(version):
        off = f"torch {version} is not supported by the hooks ({versions.range_text()} are)"
        return HooksFit(off, off)
    before, trial = torch_api.selector(), _Trial()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    factors = tuple(torch.ones(2, 16, 16, device=device) for _ in range(2))
    product = RebuiltProgram(torch.bmm, factors, freezing=False)
    try:
        trouble = compile_asking(trial, product, torch_api.MODES[0])
    finally:
        torch_api.set_selector(before)
    kinds = {type(event) for event in trial.heard.events}
    hooks = ""
    if not trial.answered:
        hooks = trouble or "Inductor asked its selector for nothing"
    elif not {TuningStarted, ChoiceSelected} <= kinds:
        hooks = "a tuning was not recorded"
    return HooksFit(hooks, trial.templates or hooks)


def _why_not_offered(name: str, choices: Sequence[Any], nodes: Any, layout: Any) -> str:
    try:
        schedule()
        offered = offer(name, choices, nodes, layout)
    except Exception as error:  # any error is the answer
        return torch_api.describe(error)
    return "" if offered else "none is offered on this device: see the targets"
