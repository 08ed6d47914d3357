"""The kernel of a choice of our templates: its source, a folder that runs it alone, and how the
sources of two differ."""

from __future__ import annotations

import difflib
from pathlib import Path

from backend.disk.layout import Layout
from backend.errors import InputsKeyInvalid
from backend.model.choice import Choice
from backend.model.origin import own_template, template_of
from backend.model.session import Session
from backend.model.tuning import Tuning
from backend.reproducer.rebuild import ReproducerError, kept_source, rebuild, write
from backend.templates.rendering import Rendered
from backend.toolchain.target import Target, amdgpu, cpu, cuda
from rocm_tui.errors import RocmTuiError
from rocm_tui.harmless import plain


class NoKernelSource(RocmTuiError):
    """The source of a choice cannot be made again."""


def source_of(tuning: Tuning, choice: Choice, session: Session | None) -> str:
    """The kernel of a choice of our templates. Raises NoKernelSource."""
    return _rendered(tuning, choice, _target(tuning, session)).source


def kernel_of(tuning: Tuning, choice: Choice, session: Session | None, layout: Layout) -> str:
    """The kernel; for a Triton choice its module. Raises NoKernelSource."""
    if own_template(choice.hash) != "triton":
        return source_of(tuning, choice, session)
    try:
        return kept_source(layout.triton, choice.description, choice.hash or "")
    except ReproducerError as error:
        raise NoKernelSource(str(error)) from error


def write_reproducer(path: Path, tuning: Tuning, choice: Choice, session: Session | None) -> Target:
    """A folder with kernel, `main` and Makefile at `path`; what for. Raises NoKernelSource."""
    if own_template(choice.hash) == "triton":
        raise NoKernelSource(
            f"{choice.label} is a Triton kernel, which needs no folder to be built in: "
            "`--source` prints a module that runs wherever Triton is"
        )
    target = _target(tuning, session)
    try:
        write(path, _rendered(tuning, choice, target), target)
    except ReproducerError as error:
        raise NoKernelSource(str(error)) from error
    return target


def _rendered(tuning: Tuning, choice: Choice, target: Target) -> Rendered:
    if tuning.inputs_key is None or choice.hash is None:
        raise NoKernelSource(
            "the inputs key and the hash of the choice are not known, because no session tells them"
        )
    try:
        return rebuild(tuning.op, tuning.inputs_key, choice.description, choice.hash, target)
    except (ReproducerError, InputsKeyInvalid) as error:
        raise NoKernelSource(str(error)) from error


def _target(tuning: Tuning, session: Session | None) -> Target:
    """What the choice was compiled for: the session tells the arch of a GPU."""
    if tuning.device == "cpu":
        return cpu()
    arch = session.arch if session else None
    if arch is None:
        raise NoKernelSource(
            f"the arch of device {tuning.device or '?'} is not known, because no session tells it"
        )
    return amdgpu(arch) if arch.startswith("gfx") else cuda(arch)


_AROUND = 3
"""Lines of context."""


def source_diff(tuning: Tuning, left: Choice, right: Choice, session: Session | None) -> list[str]:
    """Lines from the kernel of `left` to that of `right`; none if they are the same.

    Raises NoKernelSource, naming the choice, where a source cannot be made again.
    """
    sources = []
    for choice in (left, right):
        if not template_of(choice):
            raise NoKernelSource(
                f"{choice.label} is no choice of our templates: only their sources are at hand"
            )
        try:
            sources.append(source_of(tuning, choice, session).splitlines())
        except NoKernelSource as error:
            raise NoKernelSource(f"no source of {choice.label} is at hand: {error}") from error
    before, after = sources
    lines = difflib.unified_diff(before, after, left.label, right.label, n=_AROUND, lineterm="")
    return [plain(line) for line in lines]
