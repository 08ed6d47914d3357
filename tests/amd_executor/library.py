"""Builds kernels that run on the executor: instructions, and the host code that launches them."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from filelock import FileLock

from backend.errors import ToolchainError
from backend.templates.rendering import Rendered
from backend.toolchain import code_cache, targets
from backend.toolchain.target import INCLUDE, CompileOptions, Target, defines
from tests.amd_executor import assembly
from tests.amd_executor.assembly import AssemblyError, Instruction
from tests.support.places import ROOT
from tests.support.template_lab import Kernel, Memory

CORE = Path(__file__).parent / "core"
KEPT = ROOT / "build" / "amd-executor"
FLAGS = ("-std=c++20", "-O1", "-mf16c", "-ffp-contract=off", "-fPIC")
ARGUMENT_KINDS = {
    "hidden_block_count_x": 1,
    "hidden_block_count_y": 2,
    "hidden_block_count_z": 3,
    "hidden_group_size_x": 4,
    "hidden_group_size_y": 5,
    "hidden_group_size_z": 6,
    "hidden_grid_dims": 7,
}
OTHER_HIDDEN = 8
DESCRIPTOR = {  # fields of `Kernel` in core/launch.cpp, and where the kernel descriptor has them
    "lds": "group_segment_fixed_size",
    "scratch": "private_segment_fixed_size",
    "kernarg": "kernarg_size",
    "user_count": "user_sgpr_count",
    "private_buffer": "user_sgpr_private_segment_buffer",
    "dispatch": "user_sgpr_dispatch_ptr",
    "queue": "user_sgpr_queue_ptr",
    "kernarg_pointer": "user_sgpr_kernarg_segment_ptr",
    "dispatch_id": "user_sgpr_dispatch_id",
    "flat_scratch": "user_sgpr_flat_scratch_init",
    "private_size": "user_sgpr_private_segment_size",
    "preload_length": "user_sgpr_kernarg_preload_length",
    "preload_offset": "user_sgpr_kernarg_preload_offset",
    "group_x": "system_sgpr_workgroup_id_x",
    "group_y": "system_sgpr_workgroup_id_y",
    "group_z": "system_sgpr_workgroup_id_z",
    "group_info": "system_sgpr_workgroup_info",
    "work_item": "system_vgpr_workitem_id",
}


class _Argument(ctypes.Structure):
    _fields_: ClassVar[Sequence[Any]] = [(n, ctypes.c_int32) for n in ("offset", "size", "kind")]


_KERNEL_NUMBERS = (
    "argument_count entry lds scratch kernarg lanes user_count private_buffer dispatch queue "
    "kernarg_pointer dispatch_id flat_scratch private_size preload_length preload_offset "
    "group_x group_y group_z group_info wave_offset work_item"
).split()


class _Kernel(ctypes.Structure):
    _fields_: ClassVar[Sequence[Any]] = [
        ("name", ctypes.c_char_p),
        ("arguments", ctypes.POINTER(_Argument)),
        *((name, ctypes.c_int32) for name in _KERNEL_NUMBERS),
    ]


class _Program(ctypes.Structure):
    _fields_: ClassVar[Sequence[Any]] = [
        ("instructions", ctypes.POINTER(Instruction)),
        ("kernels", ctypes.POINTER(_Kernel)),
        *((name, ctypes.c_int32) for name in ("count", "kernel_count", "gfx", "fnuz")),
    ]


class _Range(ctypes.Structure):
    _fields_: ClassVar[Sequence[Any]] = [
        ("begin", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("writable", ctypes.c_bool),
    ]


def _run(*command: object) -> None:
    finished = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if finished.returncode:
        raise ToolchainError(f"{command[0]} failed: {finished.stderr[:2000]}")


@functools.cache
def core() -> ctypes.CDLL:
    """Load the executor so that host code sees its functions; compile it if it has changed."""
    compiler = targets.require(Target("cpu"))
    parts = [compiler.version.encode(), *(file.read_bytes() for file in sorted(CORE.iterdir()))]
    path = KEPT / f"{hashlib.sha256(b''.join(parts)).hexdigest()[:16]}.so"
    KEPT.mkdir(parents=True, exist_ok=True)
    with FileLock(KEPT / "lock"), tempfile.TemporaryDirectory(dir=KEPT) as folder:
        if not path.is_file():
            for old in KEPT.glob("*.so"):
                old.unlink()
            _compile_core(compiler.executable, Path(folder)).replace(path)
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    library.amd_handler.restype = ctypes.c_void_p
    library.amd_message.restype = ctypes.c_char_p
    library.amd_executed.restype = ctypes.c_uint64
    if library.amd_size_of_instruction() != ctypes.sizeof(Instruction):
        raise RuntimeError("core/state.h and assembly.py have different instructions")
    return library


def _compile_core(compiler: Sequence[str], folder: Path) -> Path:
    def compiled(source: Path) -> Path:
        result = folder / f"{source.stem}.o"
        _run(*compiler, *FLAGS, "-c", source, "-o", result)
        return result

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, sorted(CORE.glob("*.cpp"))))
    _run(*compiler, "-shared", *objects, "-o", folder / "core.so")
    return folder / "core.so"


class Program:
    """The instructions of one text, with the function of `core/` that executes each."""

    def __init__(self, text: str) -> None:
        self.assembly = assembly.parse(text)
        library, self.lines = core(), text.splitlines()
        for instruction, name in zip(
            self.assembly.instructions, self.assembly.mnemonics, strict=True
        ):
            instruction.run = library.amd_handler(name.encode())
            if not instruction.run:
                raise AssemblyError(f"{name} is unknown: {self._line(instruction)}")
        count = len(self.assembly.instructions)
        self._instructions = (Instruction * count)(*self.assembly.instructions)
        self._arguments: list[Any] = []
        kernels = [self._kernel(kernel) for kernel in self.assembly.kernels]
        self._kernels = (_Kernel * len(kernels))(*kernels)
        arch = self.assembly.arch
        self.native = _Program(
            self._instructions,
            self._kernels,
            count,
            len(kernels),
            self.assembly.generation,
            arch == "gfx942",
        )

    def _line(self, instruction: Instruction) -> str:
        return f"line {instruction.line}, {self.lines[instruction.line - 1].strip()}"

    def line(self, at: int) -> str:
        """Return number and text of an instruction's line."""
        return self._line(self._instructions[at])

    def _kernel(self, kernel: assembly.KernelText) -> _Kernel:
        arguments = (_Argument * len(kernel.arguments))()
        for at, argument in enumerate(kernel.arguments):
            hidden = ARGUMENT_KINDS.get(argument.kind, OTHER_HIDDEN)
            kind = hidden if argument.kind.startswith("hidden_") else 0
            arguments[at] = _Argument(argument.offset, argument.size, kind)
        self._arguments.append(arguments)
        native = _Kernel(
            name=kernel.name.encode(),
            arguments=arguments,
            argument_count=len(arguments),
            entry=self.assembly.labels[kernel.name],
            lanes=kernel.lanes,
        )
        for name, key in DESCRIPTOR.items():
            setattr(native, name, kernel.descriptor.get(key, 0))
        offset = "system_sgpr_private_segment_wavefront_offset"
        native.wave_offset = kernel.descriptor.get(offset, 0)
        return native

    @contextmanager
    def without(self, at: int) -> Iterator[None]:
        """Do nothing at instruction `at`: a mistake."""
        run = self._instructions[at].run
        self._instructions[at].run = core().amd_handler(b"s_nop")
        try:
            yield
        finally:
            self._instructions[at].run = run

    @contextmanager
    def exchanged(self, at: int) -> Iterator[None]:
        """Exchange the first two sources of instruction `at`: a mistake."""
        operands = self._instructions[at].operands
        first, second = (assembly.Operand.from_buffer_copy(operands[n]) for n in (1, 2))
        operands[1], operands[2] = second, first
        try:
            yield
        finally:
            operands[1], operands[2] = first, second

    def matrix_instructions(self) -> list[int]:
        """Return the matrix instructions that have been executed."""
        names = self.assembly.mnemonics
        return [at for at in self._executed() if names[at].startswith(("v_mfma", "v_wmma"))]

    def barriers(self) -> list[int]:
        """Return the barriers that have been executed."""
        names = ("s_barrier", "s_barrier_wait")
        return [at for at in self._executed() if self.assembly.mnemonics[at] in names]

    def waits(self) -> list[int]:
        """Return the waits that have completed an access."""
        return [at for at in self._executed() if self._instructions[at].landed]

    def _executed(self) -> list[int]:
        return [at for at, code in enumerate(self._instructions) if code.executed]

    def executed(self) -> Counter[str]:
        """Count executed instructions by name, with 0 for names that were never executed."""
        counts: Counter[str] = Counter()
        for instruction, name in zip(self._instructions, self.assembly.mnemonics, strict=True):
            counts[name] += instruction.executed
        return counts


@dataclass
class Executor:
    """Starts the calls of `template_lab`; `programs` are those that were built.

    `order` says which wave of a workgroup is first: 0 the first one, 1 the last one.
    """

    target: Target
    order: int = 0

    def __post_init__(self) -> None:
        self.programs: list[Program] = []
        self.calls: Counter[str] = Counter()
        self.kind = ""

    def build(self, rendered: Rendered, root: Path) -> Kernel:
        """Compile a source. Raises ToolchainError and AssemblyError."""
        program = Program(targets.assembly(rendered.source, self.target))
        self.programs.append(program)
        core().amd_load(ctypes.byref(program.native))
        library = ctypes.CDLL(str(host_library(rendered.source, self.target, root)))
        entry = library[rendered.name]
        pointers = sum(arg.kind in ("input", "output") for arg in rendered.args)
        entry.restype = ctypes.c_int
        entry.argtypes = code_cache.argtypes(pointers, len(rendered.args) - pointers)
        return Kernel(rendered, entry, lambda code: f"error {code}", self.start)

    def start(
        self, call: code_cache.Entry, values: Sequence[torch.Tensor | int], workspace: Memory
    ) -> int | str:
        """Call an entry as `template_lab.Start` does; return its code, or the line that failed."""
        self.calls[self.kind] += 1
        begin = workspace.address + workspace.at_end(workspace.room)
        room = workspace.bytes[workspace.at_end(workspace.room) :][: workspace.room]
        watch((*values, room), self.order)
        addresses = [x.data_ptr() if isinstance(x, torch.Tensor) else x for x in values]
        code = call(*addresses, None, begin, None)
        message = core().amd_message().decode()
        return message if code and message else code


def watch(values: Iterable[torch.Tensor | int], order: int = 0) -> None:
    """Let kernels access these tensors and nothing else, and forget earlier errors.

    `order` says which wave of a workgroup is first.
    """
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    ranges = [_Range(x.data_ptr(), x.data_ptr() + span(x), True) for x in tensors]
    core().amd_memory((_Range * len(ranges))(*ranges), len(ranges), order)


def span(tensor: torch.Tensor) -> int:
    """Return the bytes from the first element to the end of the last one."""
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((n - 1) * step for n, step in steps)
    return (last + 1) * tensor.element_size() if tensor.numel() else 0


def host_library(source: str, target: Target, root: Path) -> Path:
    """Compile the host code of a source as clang does for HIP. Raises ToolchainError."""
    folder = Path(tempfile.mkdtemp(prefix="host-", dir=root))
    (folder / "kernel.hip").write_text(source, encoding="utf-8")
    (folder / "empty").write_bytes(b"")
    compiler = targets.require(target)
    clang = (*compiler.executable, *(("clang",) if compiler.driver == "zig" else ()))
    _run(
        *clang,
        *("-x", "hip", f"--offload-arch={target.arch}", "-std=c++17", "-O1", "-fPIC"),
        *("-nogpuinc", "-nogpulib", "--cuda-host-only"),
        *("-Xclang", "-fcuda-include-gpubinary", "-Xclang", folder / "empty"),
        *defines(target, CompileOptions()),
        *(f"-I{INCLUDE / 'amdgpu'}", f"-I{INCLUDE}"),
        *("-c", folder / "kernel.hip", "-o", folder / "host.o"),
    )
    linker = targets.require(Target("cpu")).executable
    _run(*linker, "-shared", folder / "host.o", "-o", folder / "host.so")
    return folder / "host.so"
