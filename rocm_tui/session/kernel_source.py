"""The kernel of a choice: its source, the output of compilers, a folder that runs one of ours, and
how the sources of two differ.

A source of ours is made again from what a tuning is known by, or taken from the code cache; those
of Inductor's templates are the texts that it left below its cache dir. Whatever is shown has the
hash of the choice, or a file named by it.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from backend.cache import code
from backend.cache.best_config import is_folder
from backend.disk.layout import Layout
from backend.errors import InputsKeyInvalid, ToolchainError
from backend.model.choice import Choice
from backend.model.origin import own_template, template_of
from backend.model.session import Session
from backend.model.tuning import Tuning
from backend.templates.rendering import Rendered
from backend.templates.reproducer import ReproducerError, kept_source, rebuild, write
from backend.toolchain import targets
from backend.toolchain.resources import Unknown
from backend.toolchain.target import Missing, Target, amdgpu, cpu, cuda
from backend.toolchain.targets import assembly
from rocm_tui.errors import RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.session.kernel_resources import KernelResources, ResourceUse, of_triton
from rocm_tui.session.refusals import why_not_read

Language = Literal["c++", "python", "listing"]


class NoKernelSource(RocmTuiError):
    """The source of a choice is not at hand; one line says why."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A text of a kernel: its source, or the output of a compiler. `about` says what it is."""

    name: str
    language: Language
    about: str
    path: Path | None = None
    text: str | None = None
    """None if it is read, or made, on request."""
    target: Target | None = None
    """What assembly is made for."""


@dataclass(frozen=True, slots=True)
class ChoiceKernel:
    """All that is at hand of a choice's kernel. The first stage is its source."""

    stages: tuple[Stage, ...]
    resources: ResourceUse | Unknown

    @property
    def source(self) -> Stage:
        return self.stages[0]

    def stage(self, name: str) -> Stage:
        """The one of this name, the newest. Raises NoKernelSource with the names there are."""
        for stage in self.stages:
            if name in (stage.name, stage.name.partition(" ")[0]):
                return stage
        names = ", ".join(stage.name for stage in self.stages)
        raise NoKernelSource(f"no stage {plain(name, 40)} at hand: there is {names}")


def kernel_of(
    tuning: Tuning, choice: Choice, session: Session | None, layout: Layout
) -> ChoiceKernel:
    """What is at hand of a choice. Raises NoKernelSource where its source is not."""
    resources = KernelResources(layout.root)
    source = _source(tuning, choice, session, layout, resources)
    own = template_of(choice)
    if own:
        answer = resources.of([choice]).get(choice.hash or "")
        makeable = source.target is not None and source.target.kind != "cpu"
        assembled = (_assembly(source),) if makeable else ()
        return ChoiceKernel((source, *assembled), answer or Unknown("it is no kernel of a GPU"))
    if source.language != "python" or source.path is None:
        return ChoiceKernel((source,), Unknown("a CPU has no such resources"))
    compiled = code.kernels_of(source.path, code.folders_of(layout.root))
    arch = session.arch.partition(":")[0] if session and session.arch else None
    compiled = [kernel for kernel in compiled if kernel.arch == arch] or compiled
    if not compiled:
        return ChoiceKernel((source,), Unknown("Triton's cache has no kernel of this file"))
    return ChoiceKernel((source, *_stages(compiled)), of_triton(compiled[0]))


def source_of(tuning: Tuning, choice: Choice, session: Session | None, layout: Layout) -> str:
    """The source alone. Raises NoKernelSource."""
    return _source(tuning, choice, session, layout).text or ""


def text_of(stage: Stage, source: Stage) -> str:
    """The text of a stage, read or made now. Raises NoKernelSource."""
    if stage.text is not None:
        return stage.text
    if stage.path is not None:
        text = code.read_text(stage.path, _MOST)
        if text is None:
            raise NoKernelSource(
                f"cannot read {stage.path}: it is gone, or above {_MOST >> 20} MiB"
            )
        return text
    assert stage.target is not None
    try:
        return assembly(source.text or "", stage.target)
    except ToolchainError as error:
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


_MOST = 64 << 20
"""Bytes of a text that a compiler made."""
_GENERATED = "generated by Inductor"


def _source(
    tuning: Tuning,
    choice: Choice,
    session: Session | None,
    layout: Layout,
    resources: KernelResources | None = None,
) -> Stage:
    own = own_template(choice.hash)
    if own == "triton":
        try:
            path, text = kept_source(layout.triton, choice.description, choice.hash or "")
        except ReproducerError as error:
            raise NoKernelSource(str(error)) from error
        return Stage("source", "python", "a Triton module of ours", path, text)
    if own:
        return _own_source(tuning, choice, session, resources or KernelResources(layout.root))
    if tuning.code:
        return _inductors_own(tuning, layout)
    why = why_not_read(choice)
    if why is not None:
        raise NoKernelSource(why)
    generated = code.code_of(layout.root, choice.hash or "")
    if generated is None:
        raise NoKernelSource(f"{choice.label}: {_not_there(choice, session, layout)}")
    if generated.path is None:
        return Stage(
            "source", "python", "the graph of several kernels that it is", None, generated.text
        )
    language: Language = "python" if generated.path.suffix == ".py" else "c++"
    return Stage("source", language, _GENERATED, generated.path, generated.text)


def _inductors_own(tuning: Tuning, layout: Layout) -> Stage:
    """The file that a kernel was launched from. What a log names elsewhere is not followed."""
    path = Path(tuning.code)
    inside = path.parent.parent == layout.root and is_folder(path.parent.name)
    text = code.read_text(path) if inside and path.suffix == ".py" else None
    if text is None:
        where = "is gone" if inside else f"is not below {layout.root}"
        raise NoKernelSource(f"the source of {plain(tuning.kernel, 80)} {where}")
    return Stage("source", "python", _GENERATED, path, text)


def _own_source(
    tuning: Tuning, choice: Choice, session: Session | None, resources: KernelResources
) -> Stage:
    """Made again from the config; else what lies in the code cache, where the hash says so."""
    about = "a template of ours"
    try:
        target = _target(tuning, session)
        text = _rendered(tuning, choice, target).source
        return Stage("source", "c++", f"{about}, rendered again for {target}", None, text, target)
    except NoKernelSource:
        kept = resources.source_of(choice)
        if kept is None:
            raise
        return Stage("source", "c++", f"{about}, compiled for {kept[0]}", None, kept[1], kept[0])


def _not_there(choice: Choice, session: Session | None, layout: Layout) -> str:
    name = code.digest_in(choice.hash or "")
    if name is None:
        return "its hash names no source"
    cache_dir = session.cache_dir if session else ""
    if cache_dir and cache_dir != str(layout.root):
        return (
            f"its source is not below {layout.root}: its session wrote to {plain(cache_dir, 200)}"
        )
    return f"its source is not below {layout.root}: it was removed, or is in another cache dir"


def _assembly(source: Stage) -> Stage:
    assert source.target is not None
    name = "ptx" if source.target.kind == "cuda" else "amdgcn"
    about = f"the output of the compiler of this machine for {source.target}"
    if isinstance(targets.find_compiler(source.target), Missing):
        about = f"no compiler of this machine makes it for {source.target}"
    return Stage(name, "listing", about, target=source.target)


def _stages(compiled: Sequence[code.CompiledKernel]) -> list[Stage]:
    """Return the stages for each arch, which is named where there are several."""
    stages: list[Stage] = []
    for kernel in compiled:
        of = f" {kernel.arch}" if len(compiled) > 1 else ""
        for stage, path in kernel.stages.items():
            about = f"Triton's cache, {kernel.arch}"
            stages.append(Stage(stage + of, "listing", about, path))
    return stages


def _rendered(tuning: Tuning, choice: Choice, target: Target) -> Rendered:
    if tuning.inputs_key is None or choice.hash is None:
        raise NoKernelSource(
            "the inputs key and the hash of the choice are unknown: no session has them"
        )
    try:
        return rebuild(tuning.op, tuning.inputs_key, choice.description, choice.hash, target)
    except (ReproducerError, InputsKeyInvalid) as error:
        raise NoKernelSource(str(error)) from error


def _target(tuning: Tuning, session: Session | None) -> Target:
    """What the choice was compiled for: the session has the arch of a GPU."""
    if tuning.device == "cpu":
        return cpu()
    arch = session.arch if session else None
    if arch is None:
        raise NoKernelSource(
            f"the arch of device {tuning.device or '?'} is unknown: no session has it"
        )
    try:
        return amdgpu(arch) if arch.startswith("gfx") else cuda(arch)
    except ValueError as error:
        raise NoKernelSource(str(error)) from error


_AROUND = 3
"""Lines of context."""


def source_diff(
    tuning: Tuning, left: Choice, right: Choice, session: Session | None, layout: Layout
) -> list[str]:
    """Lines from the kernel of `left` to that of `right`; none if they are the same.

    Raises NoKernelSource, naming the choice, where a source is not at hand.
    """
    sources = []
    for choice in (left, right):
        try:
            sources.append(source_of(tuning, choice, session, layout).splitlines())
        except NoKernelSource as error:
            raise NoKernelSource(f"there is nothing to compare with: {error}") from error
    before, after = sources
    lines = difflib.unified_diff(before, after, left.label, right.label, n=_AROUND, lineterm="")
    return [plain(line) for line in lines]
