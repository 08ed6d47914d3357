"""An event log of one hand-made session."""

from __future__ import annotations

from pathlib import Path

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice
from backend.model.events import ChoiceSelected, ChoiceTimed, TuningStarted
from backend.model.origin import choice_hash, kernel_hash
from backend.model.session import Session
from backend.templates.heuristics import gemm_configs
from backend.templates.operand import Operand
from backend.templates.problem import GemmProblem, Sizes
from backend.templates.rendering import render
from backend.toolchain.target import cpu

SHAPE = Sizes(64, 128, 96)

KEY = "[('cpu', 'torch.float32', 64, 96, 96, 1, 0), ('cpu', 'torch.float32', 96, 128, 128, 1, 0)]"


def write_session(cache: Path) -> list[Choice]:
    """A tuning of two kernels of our templates and ATen, for the CPU."""
    problem = GemmProblem(
        Operand("a", "float32", (64, 96), (96, 1)),
        Operand("b", "float32", (96, 128), (128, 1)),
        Operand("out", "float32", (64, 128), (128, 1)),
    )
    choices = []
    for at, config in enumerate(gemm_configs(problem, cpu(), SHAPE)[:2]):
        kernel = render(problem, config, "rocm_gemm")
        hash_ = choice_hash(
            "gemm", kernel_hash(kernel.source, "rocm_gemm", str(cpu())), config.description
        )
        choices.append(Choice(f"rocm_gemm_{at}", hash_, None, config.description))
    choices.append(Choice("mm", "mm-123"))
    writer = EventWriter(Layout(cache), Session("s", host="h", pid=1, started=1.0, device="cpu"))
    shapes = ((64, 96), (96, 128))
    writer.write(
        TuningStarted(
            1,
            1.0,
            "mm",
            KEY,
            "highest",
            shapes,
            ((96, 1), (128, 1)),
            ("torch.float32",) * 2,
            "cpu",
            tuple(choices),
        )
    )
    for at, choice in enumerate(choices):
        writer.write(ChoiceTimed(1, choice.hash or "", 1.0 + at / 50))
    writer.write(ChoiceSelected(1, 2.0, choices[0].hash or "", "timing", 1.0, 1.0))
    writer.close()
    return choices
