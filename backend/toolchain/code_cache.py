"""Compiled kernels in Inductor's cache dir, named by the content of all their inputs.

`rocm_tui/code/<2>/<source>-<toolchain>.so` (or `.co`), with the source `.hip`, the command and its
output `.log`, and `.json` with the hash of the artefact: it is written last, and if it is missing
or the file differs from it, the kernel is compiled again. One process at a time compiles a key.

Names are digests of content, without paths. `<source>` can be computed without a compiler;
`<toolchain>` is also part of the name of a choice, whose times are valid for one toolchain. Both
include the headers. The same toolchain has the same name on every machine. Existing kernels, from
any compiler, can be loaded where no compiler is installed.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import os
import platform
import re
import shlex
import shutil
import signal
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from backend.disk import trusted
from backend.errors import (
    CacheError,
    CompileError,
    CompileTimeoutError,
    KernelError,
    LoadError,
    MissingCompilerError,
    UnsafePath,
)
from backend.toolchain import targets
from backend.toolchain.target import (
    INCLUDE,
    CompileOptions,
    Compiler,
    Finished,
    Missing,
    Target,
    TargetKind,
    parse_target,
    run,
)

_NAME_FORMAT = 2
_COMMON = "rocm_tui"
"""The folder of headers that kernels include, beside one for each kind of target."""


def source_key(source: str, target: Target, options: CompileOptions) -> str:
    """Return the digest of all inputs known without a compiler, and of this CPU's features: a
    GPU's library has code for the host too."""
    machine = platform.machine()
    features = targets.instruction_set() if target.kind == "cpu" else (machine,)
    if features == ("x86_64",):  # as it was before other hosts' libraries had other names
        features = ()
    how = (options.level, options.defines, options.flags)
    return _digest(source, headers_hash(target.kind), str(target), how, features)[:40]


_FLAGS = {
    "nvcc": ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"),
    "hipcc": ("HIPCC_COMPILE_FLAGS_APPEND", "HIPCC_LINK_FLAGS_APPEND"),
}
"""Environment variables whose flags a compiler adds to a command."""


def toolchain_of(compiler: Compiler, options: CompileOptions = CompileOptions()) -> str:  # noqa: B008
    """Return the digest of the toolchain: headers, command, flags in the environment, the
    compiler's version."""
    # ROCm's folder, three above the program, is in its command.
    nameless = replace(compiler, executable=(f"/ROCM/llvm/bin/{compiler.driver}",))
    places = Path("SOURCE"), Path("OUTPUT"), options, Path("INCLUDE")
    command = targets.commands(nameless, *places)
    target = compiler.target
    names = _FLAGS.get(compiler.driver, ())
    flags = [(name, os.environ[name]) for name in names if os.environ.get(name)]
    return _digest(headers_hash(target.kind), command, compiler.version, str(target), *flags)[:16]


@lru_cache(maxsize=3)
def headers_hash(kind: TargetKind) -> str:
    """Return the digest of the headers that a kernel for this kind of target can include."""
    digest = hashlib.sha256()
    for folder in (_COMMON, kind):
        for header in sorted((INCLUDE / folder).rglob("*.h")):
            text = header.read_bytes()
            digest.update(f"{header.relative_to(INCLUDE).as_posix()}\0{len(text)}\0".encode())
            digest.update(text)
    return digest.hexdigest()


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps([_NAME_FORMAT, *parts]).encode()).hexdigest()


_FORMAT = 2
_KILLED = (128 + signal.SIGKILL, 128 + signal.SIGTERM)
"""Exit codes of shell scripts whose command was killed. What the command printed before, such as
the registers that nvcc lists, does not say so."""
_ERROR_LINE = re.compile(r"\berror\b|undefined (reference|symbol)|\bfatal\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Compiled:
    """One compiled kernel. `seconds` is the duration of the compile, even if it was long ago.

    `command` is for a shell; `log` is the compiler's output (for CUDA: registers and spills).
    `loadable` is False for a code object that no host program can load alone.
    """

    target: Target
    path: Path
    command: str
    seconds: float
    from_cache: bool
    loadable: bool
    log: str

    @property
    def toolchain(self) -> str:
        return made_by(self.path)


def compile(
    source: str,
    target: Target,
    options: CompileOptions = CompileOptions(),  # noqa: B008
    *,
    cache_root: Path,
    compiler: Compiler | None = None,
    toolchain: str = "",
) -> Compiled:
    """Compile `source` for `target`, or return it from the cache in `cache_root`.

    `cache_root` is Inductor's cache dir. An artefact of this `toolchain` is returned without
    looking for a compiler; without any compiler, the latest artefact of any. Raises
    MissingCompilerError, CompileError, CompileTimeoutError, and CacheError if the folder is not
    ours alone.
    """
    name = source_key(source, target, options)
    if toolchain and (cached := _Entry.of(f"{name}-{toolchain}", cache_root).load(target)):
        return cached
    installed = compiler or targets.find_compiler(target)
    if isinstance(installed, Missing):
        if latest := _latest(name, target, cache_root):
            return latest
        raise MissingCompilerError(f"target {target} is off: {installed.reason}")
    entry = _Entry.of(f"{name}-{toolchain_of(installed, options)}", cache_root)
    if cached := entry.load(target):
        return cached
    entry.make_folder()
    with entry.locked(target, options.timeout_seconds):
        return entry.load(target) or entry.build(source, installed, options)


def toolchain(source: str, target: Target, *, cache_root: Path) -> str | None:
    """Return the toolchain of the library that `compile` would return: the installed one, else that
    of this source's last compile; None if neither exists."""
    compiler = targets.find_compiler(target)
    if isinstance(compiler, Missing):
        latest = _latest(source_key(source, target, CompileOptions()), target, cache_root)
        return latest.toolchain if latest is not None and latest.loadable else None
    return toolchain_of(compiler) if targets.usable(compiler) else None


def _latest(name: str, target: Target, cache_root: Path) -> Compiled | None:
    """Return the last compiled artefact of one source, by any compiler."""

    def time_of(path: Path) -> int:
        with suppress(OSError):
            return path.stat().st_mtime_ns
        return 0

    places = (code_folder(cache_root) / name[:2]).glob(f"{name}-*.json")
    for place in sorted(places, key=time_of, reverse=True):
        if compiled := _Entry.of(place.stem, cache_root).load(target):
            return compiled
    return None


def has_libraries(target: Target, cache_root: Path) -> bool:
    """Return whether anything loadable was compiled for this target, from any source."""
    for entry in entries(cache_root):
        with suppress(OSError, ValueError, KeyError, TypeError):
            if entry.with_suffix(".so").is_file() and _meta(entry)["target"] == str(target):
                return True
    return False


def code_folder(cache_root: Path) -> Path:
    return cache_root / "rocm_tui" / "code"


@dataclass(frozen=True, slots=True)
class _Entry:
    key: str
    root: Path
    folder: Path

    @classmethod
    def of(cls, key: str, cache_root: Path) -> _Entry:
        return cls(key, cache_root, code_folder(cache_root) / key[:2])

    def file(self, suffix: str) -> Path:
        return self.folder / f"{self.key}{suffix}"

    def make_folder(self) -> None:
        _make_private(self.root, self.folder)

    @contextmanager
    def locked(self, target: Target, timeout: float) -> Iterator[None]:
        lock = FileLock(self.file(".lock"))
        try:
            with lock.acquire(timeout=timeout):
                yield
        except Timeout:
            raise CompileTimeoutError(
                str(target),
                "another process's compile",
                (f"another process has been compiling it for {timeout:g} s",),
                self.file(".hip"),
                self.file(".log"),
            ) from None

    def load(self, target: Target) -> Compiled | None:
        """Return the cached artefact, if it is whole."""
        try:
            meta: dict[str, Any] = json.loads(self._read(self.file(".json")))
            artefact = self.file(str(meta["suffix"]))
            whole = meta["format"] == _FORMAT and meta["sha256"] == _sha256(self._read(artefact))
            if not whole or artefact.parent != self.folder or not self.file(".hip").is_file():
                return None
            return _compiled(meta, target, artefact)
        except (OSError, UnsafePath, ValueError, KeyError, TypeError, RecursionError):
            return None

    def _read(self, path: Path) -> bytes:
        return trusted.read_file(self.root, path)

    def build(self, source: str, compiler: Compiler, options: CompileOptions) -> Compiled:
        """Compile under the lock. Files get their final names when they are complete."""
        self._sweep()
        source_path, artefact = self.file(".hip"), self.file(compiler.suffix)
        _write(source_path, source.encode())
        workdir = Path(tempfile.mkdtemp(prefix=f".{self.key}-", dir=self.folder))
        try:
            output = workdir / f"kernel{compiler.suffix}"
            began = time.monotonic()
            command, log = self._run(compiler, source_path, output, options)
            seconds = time.monotonic() - began
            digest = _sha256(output.read_bytes())
            output.chmod(output.stat().st_mode & ~0o022)
            with output.open("rb") as file:
                os.fsync(file.fileno())
            output.replace(artefact)
        finally:
            shutil.rmtree(workdir, ignore_errors=True)
        meta = {
            "format": _FORMAT,
            "target": str(compiler.target),
            "compiler": compiler.version,
            "suffix": compiler.suffix,
            "command": command,
            "seconds": seconds,
            "sha256": digest,
            "log": log,
        }
        _write(self.file(".json"), json.dumps(meta, indent=1).encode())
        return replace(_compiled(meta, compiler.target, artefact), from_cache=False)

    def _run(
        self, compiler: Compiler, source: Path, output: Path, options: CompileOptions
    ) -> tuple[str, str]:
        commands = targets.commands(compiler, source, output, options)
        # The command for a person to paste has the result's final name.
        shell = " && ".join(shlex.join(command) for command in commands)
        shell = shell.replace(str(output), str(self.file(compiler.suffix)))
        log = ""
        deadline = time.monotonic() + options.timeout_seconds
        for command in commands:
            finished = run(command, deadline - time.monotonic(), output.parent)
            log += finished.text
            if finished.code != 0 or finished.timed_out:
                raise self._error(compiler, finished, shell, log, options)
        if not output.is_file():
            nothing = Finished(0, "the compiler wrote nothing")
            raise self._error(compiler, nothing, shell, log, options)
        self._write_log(shell, log)
        return shell, log

    def _error(
        self, compiler: Compiler, finished: Finished, shell: str, log: str, options: CompileOptions
    ) -> CompileError:
        self._write_log(shell, log)
        kind = CompileTimeoutError if finished.timed_out else CompileError
        status = f"exit status {finished.code}"
        errors = first_errors(finished.text) or (f"{status}, nothing printed",)
        if finished.timed_out:
            errors = (f"stopped after {options.timeout_seconds:g} s", *errors[:4])
        elif (finished.code < 0 or finished.code in _KILLED) and finished.text:
            errors = (status, *errors[:4])
        files = self.file(".hip"), self.file(".log")
        return kind(str(compiler.target), shell, errors, *files)

    def _write_log(self, shell: str, log: str) -> None:
        _write(self.file(".log"), f"{shell}\n{log}".encode())

    def _sweep(self) -> None:
        """Remove leftovers of a killed process; holding the lock means that nobody works there."""
        for left in self.folder.glob(f".{self.key}[-.]*"):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                with suppress(OSError):
                    left.unlink()


def first_errors(text: str) -> tuple[str, ...]:
    """Return at most five lines that name an error, else the first, without control characters."""
    lines = [
        "".join(char if char.isprintable() else " " for char in line).strip()
        for line in text.splitlines()
    ]
    lines = [line for line in lines if line]
    named = [line for line in lines if _ERROR_LINE.search(line)]
    return tuple((named or lines)[:5])


def _make_private(root: Path, folder: Path) -> None:
    """Create a folder that nobody else can write, nor any above it: its content runs as us."""
    try:
        with trusted.opened_folder(root, folder, make=True):
            pass
    except UnsafePath as error:
        raise CacheError(str(error)) from error
    except OSError as error:
        raise CacheError(f"cannot use {folder} for compiled kernels: {error.strerror}") from error


def _write(path: Path, content: bytes) -> None:
    """Write a file atomically, through a temporary one beside it."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except OSError:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


_MOST_TEXT = 8 << 20
_MOST_CODE = 256 << 20


def entries(cache_root: Path) -> Iterator[Path]:
    """Yield the `.json` of each completely compiled kernel."""
    try:
        yield from sorted(code_folder(cache_root).glob("[0-9a-f][0-9a-f]/*.json"))
    except OSError:
        return


def source_of_entry(entry: Path) -> tuple[Target, str] | None:
    """Return the target and source of an artefact; None if the entry is damaged or gone."""
    try:
        target = parse_target(_meta(entry)["target"])
        return target, _read(entry.with_suffix(".hip"), _MOST_TEXT).decode()
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def made_by(entry: Path) -> str:
    """Return the toolchain of a kernel, see `backend.toolchain.code_cache`."""
    return entry.stem.rpartition("-")[2]


def compiled(entry: Path) -> Compiled | None:
    """Return the artefact of an entry; None if it is not whole."""
    try:
        meta = _meta(entry)
        for suffix in (".so", ".co"):
            path = entry.with_suffix(suffix)
            if path.is_file() and _sha256(_read(path, _MOST_CODE)) == meta["sha256"]:
                return _compiled(meta, parse_target(meta["target"]), path)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return None


def _compiled(meta: Mapping[str, Any], target: Target, path: Path) -> Compiled:
    """Return the kernel at `path`, described by `meta`."""
    return Compiled(
        target=target,
        path=path,
        command=str(meta["command"]),
        seconds=float(meta["seconds"]),
        from_cache=True,
        loadable=path.suffix == ".so",
        log=str(meta["log"]),
    )


def _meta(entry: Path) -> Any:
    try:
        return json.loads(_read(entry, _MOST_TEXT))
    except RecursionError:
        raise ValueError(f"{entry} is nested too deeply") from None


def _read(path: Path, most: int) -> bytes:
    """Read a regular file of at most `most` bytes, since a pipe would block. Raises OSError."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) or status.st_size > most:
        raise OSError(f"{path} is not a file of at most {most} bytes")
    return path.read_bytes()


Entry = Callable[..., int]

_loaded: dict[Path, Library] = {}
_lock = threading.Lock()
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Library:
    """A loaded library. It stays loaded until the process ends."""

    path: Path
    _handle: ctypes.CDLL = field(repr=False)

    def entry(self, name: str, argtypes: Sequence[Any] | None = None) -> Entry:
        """Return the entry, checking arguments against `argtypes` if given. Raises LoadError."""
        try:
            function = self._handle[name]
        except AttributeError:
            raise LoadError(f"{self.path} has no entry {name}") from None
        function.restype = ctypes.c_int
        if argtypes is not None:
            function.argtypes = list(argtypes)
        return function

    def error_text(self, code: int) -> str:
        """Return the library's text for an error number."""
        try:
            describe = self._handle["rocm_tui_error_text"]
        except AttributeError:
            return "unknown"
        describe.restype = ctypes.c_char_p
        text = describe(ctypes.c_int(code))
        return text.decode(errors="replace") if text else "unknown"

    def check(self, entry: str, code: int) -> None:
        """Raise KernelError if `code`, which `entry` returned, is an error."""
        if code != 0:
            raise KernelError(entry, code, self.error_text(code))


def load(path: Path, root: Path | None = None) -> Library:
    """Return the library at `path`; the same object each time. Raises LoadError.

    It is loaded only if nobody else can write in `root` (default: its own folder) and below, and
    through the folder's descriptor: if a path is exchanged meanwhile, the checked file is still
    loaded.
    """
    path = path.absolute()
    with _lock:
        if path not in _loaded:
            try:
                with trusted.opened_file(root or path.parent, path) as file:
                    _loaded[path] = Library(path, ctypes.CDLL(_name(file)))
            except UnsafePath as error:
                raise LoadError(str(error)) from error
            except OSError as error:
                raise LoadError(f"cannot load {path}: {error}") from error
        return _loaded[path]


def _name(descriptor: int) -> str:
    """Return a path of an open file that the C library has not seen: it takes two libraries of one
    path for the same, and descriptors are reused."""
    unique = "".join("./" if bit == "1" else "/" for bit in f"{next(_numbers):b}")
    return f"/proc/self/fd/{unique}{descriptor}"


def argtypes(pointers: int, integers: int) -> list[Any]:
    """Return the types of `pointers` tensors and `integers` sizes, strides and runtime
    arguments."""
    tail = [ctypes.POINTER(ctypes.c_size_t), ctypes.c_void_p, ctypes.c_void_p]
    return [ctypes.c_void_p] * pointers + [ctypes.c_int64] * integers + tail
