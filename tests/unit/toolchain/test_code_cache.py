"""The code cache: one compile a key, errors that say where, nothing half-written."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shlex
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from backend.errors import (
    CacheError,
    CompileError,
    CompileTimeoutError,
    MissingCompilerError,
    ToolchainError,
)
from backend.toolchain import code_cache
from backend.toolchain.code_cache import (
    code_folder,
    compile,
    first_errors,
    toolchain,
    toolchain_of,
)
from backend.toolchain.target import (
    Command,
    CompileOptions,
    Compiler,
    cpu,
    cuda,
    version_of,
)
from backend.toolchain.targets import find_compiler, require
from tests.support.places import ROOT
from tests.support.toolchain_kernels import available


def cache_key(source: str, compiler: Compiler, options: CompileOptions) -> str:
    made_of = code_cache.source_key(source, compiler.target, options)
    return f"{made_of}-{code_cache.toolchain_of(compiler, options)}"


pytestmark = pytest.mark.skipif(not available(cpu()), reason="no C++ compiler")


KERNEL = """#include <rocm_tui/gpu.h>
__global__ void fill(float* x) { x[threadIdx.x] = 7.0f; }
RT_EXPORT int run(void* x, size_t*, uint8_t*, hipStream_t stream) {
  return RT_LAUNCH(fill, 1, 64, 0, stream, static_cast<float*>(x));
}
"""


def counting_compiler(folder: Path, before: str = "") -> Compiler:
    """The real compiler behind a script that writes a line each time it is run."""
    real = require(cpu())
    script = folder / "counted-g++"
    script.write_text(
        f'#!/bin/sh\necho run >> "{folder}/runs"\n{before}\nexec {real.executable[0]} "$@"\n'
    )
    script.chmod(0o755)
    return Compiler(cpu(), "g++", (str(script),), real.version)


def runs(folder: Path) -> int:
    counted = folder / "runs"
    return len(counted.read_text().splitlines()) if counted.exists() else 0


def works(path: Path) -> bool:
    code = (
        "import ctypes, sys; x = (ctypes.c_float * 64)();"
        " assert ctypes.CDLL(sys.argv[1]).run(x, None, None, None) == 0;"
        " assert list(x) == [7.0] * 64"
    )
    return subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 0


def test_the_second_time_nothing_is_compiled(tmp_path: Path) -> None:
    compiler = counting_compiler(tmp_path)
    first = compile(KERNEL, cpu(), cache_root=tmp_path, compiler=compiler)
    again = compile(KERNEL, cpu(), cache_root=tmp_path, compiler=compiler)
    assert (first.from_cache, again.from_cache, runs(tmp_path)) == (False, True, 1)
    assert (again.path, again.seconds, again.command) == (first.path, first.seconds, first.command)
    assert first.path.with_suffix(".hip").read_text() == KERNEL
    assert first.path.parent == code_folder(tmp_path) / first.path.stem[:2]
    assert works(first.path)
    left = {path.suffix for path in first.path.parent.iterdir()}
    assert left == {".so", ".hip", ".json", ".log", ".lock"}


def test_the_command_can_be_pasted(tmp_path: Path) -> None:
    compiled = compile(KERNEL, cpu(), cache_root=tmp_path)
    compiled.path.unlink()
    subprocess.run(compiled.command, shell=True, check=True)
    assert works(compiled.path)
    assert compiled.path.with_suffix(".log").read_text().startswith(compiled.command)


def test_the_key_is_of_all_that_went_in_and_of_no_path() -> None:
    compiler = require(cpu())
    options = CompileOptions()
    keys = [
        cache_key(KERNEL, compiler, options),
        cache_key(KERNEL + "\n", compiler, options),
        cache_key(KERNEL, compiler, CompileOptions(level=1)),
        cache_key(KERNEL, compiler, CompileOptions(defines=(("A", "1"),))),
        cache_key(KERNEL, compiler, CompileOptions(flags=("-g",))),
        cache_key(KERNEL, Compiler(cpu(), "g++", ("g++",), "another version"), options),
    ]
    assert len(set(keys)) == len(keys)
    elsewhere = Compiler(cpu(), "g++", ("/elsewhere/g++",), compiler.version)
    assert cache_key(KERNEL, elsewhere, CompileOptions(timeout_seconds=1)) == keys[0]


def test_the_key_changes_with_the_processors_features(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = require(cpu())
    keys = set()
    for level in ((), ("-march=x86-64-v3",)):
        monkeypatch.setattr("backend.toolchain.targets.instruction_set", lambda _=level: _)
        keys.add(cache_key(KERNEL, compiler, CompileOptions()))
    assert len(keys) == 2


def test_the_key_changes_with_a_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys, compiler = [cache_key(KERNEL, require(cpu()), CompileOptions())], require(cpu())
    monkeypatch.setattr(code_cache, "INCLUDE", tmp_path)
    try:
        for header in ("rocm_tui/gpu.h", "cpu/more.h", "cuda/other.h"):
            (tmp_path / header).parent.mkdir()
            (tmp_path / header).write_text("// another")
            code_cache.headers_hash.cache_clear()
            keys.append(cache_key(KERNEL, compiler, CompileOptions()))
    finally:
        code_cache.headers_hash.cache_clear()
    assert len(set(keys[:3])) == 3 and len({key.partition("-")[2] for key in keys}) == 3
    assert keys[3] == keys[2]  # what is for another kind of target


def test_without_a_compiler_what_was_compiled_last_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on an image that has the runtime alone. Nothing is run, and nothing need be writable."""
    older, newer = (
        Compiler(cpu(), "g++", require(cpu()).executable, version) for version in ("1", "2")
    )
    made = [compile(KERNEL, cpu(), cache_root=tmp_path, compiler=c) for c in (newer, older, newer)]
    os.utime(made[1].path.with_suffix(".json"), (1, 1))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("CXX", raising=False)
    for folder in (tmp_path, code_folder(tmp_path), made[0].path.parent):
        folder.chmod(0o555)
    try:
        taken = compile(KERNEL, cpu(), cache_root=tmp_path)
        exact = compile(KERNEL, cpu(), cache_root=tmp_path, toolchain=made[1].toolchain)
        assert (taken.path, exact.path) == (made[0].path, made[1].path)
        assert taken.from_cache and works(taken.path)
        assert toolchain(KERNEL, cpu(), cache_root=tmp_path) == toolchain_of(newer)
        changed = KERNEL.replace("7.0f", "8.0f")
        assert toolchain(changed, cpu(), cache_root=tmp_path) is None
        with pytest.raises(MissingCompilerError, match="install g"):
            compile(changed, cpu(), cache_root=tmp_path)
        with pytest.raises(MissingCompilerError):
            compile(KERNEL, cpu(), CompileOptions(level=1), cache_root=tmp_path)
        made[0].path.chmod(0o644)
        made[0].path.write_bytes(b"damaged")
        assert compile(KERNEL, cpu(), cache_root=tmp_path).path == made[1].path
    finally:
        for folder in (tmp_path, code_folder(tmp_path), made[0].path.parent):
            folder.chmod(0o755)


def test_a_library_of_a_known_toolchain_needs_no_word_of_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = compile(KERNEL, cpu(), cache_root=tmp_path)
    monkeypatch.setattr(
        "backend.toolchain.targets.find_compiler", lambda target: pytest.fail("asked")
    )
    again = compile(KERNEL, cpu(), cache_root=tmp_path, toolchain=made.toolchain)
    assert again.path == made.path and again.from_cache


PROGRAM = """
import sys
from pathlib import Path
from backend.toolchain.code_cache import compile
from backend.toolchain.target import Compiler, cpu
root, script, version, source = sys.argv[1:]
compiled = compile(Path(source).read_text(), cpu(), cache_root=Path(root),
                   compiler=Compiler(cpu(), "g++", (script,), version))
print(compiled.from_cache, compiled.path)
"""


def start(folder: Path, compiler: Compiler) -> subprocess.Popen[str]:
    source = folder / "source.hip"
    source.write_text(KERNEL)
    arguments = [str(folder), *compiler.executable, compiler.version, str(source)]
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip


def test_four_processes_compile_a_key_once(tmp_path: Path) -> None:
    compiler = counting_compiler(tmp_path, before="sleep 1")
    processes = [start(tmp_path, compiler) for _ in range(4)]
    said = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * 4, said
    assert sorted(out.split()[0] for out, _ in said) == ["False", "True", "True", "True"]
    assert len({out.split()[1] for out, _ in said}) == 1
    assert runs(tmp_path) == 1


def wait_for(condition: object, seconds: float = 60) -> None:
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


def test_a_killed_process_leaves_nothing_broken(tmp_path: Path) -> None:
    slow = counting_compiler(tmp_path, before=f'echo $$ > "{tmp_path}/pid"\nexec sleep 600')
    process = start(tmp_path, slow)
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    process.send_signal(signal.SIGKILL)
    process.wait()
    bucket = next(code_folder(tmp_path).iterdir())
    assert [path for path in bucket.iterdir() if path.is_dir()], "it left its folder"
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

    healthy = counting_compiler(tmp_path)
    compiled = compile(KERNEL, cpu(), cache_root=tmp_path, compiler=healthy)
    assert not compiled.from_cache
    assert works(compiled.path)
    assert not [path for path in bucket.iterdir() if path.is_dir()]


def test_a_killed_compiler_is_a_failed_compile(tmp_path: Path) -> None:
    for output, first in (
        ("", "exit status -9, nothing printed"),
        ("echo 'ptxas info : Used 8 registers'", "exit status -9"),
    ):
        killed = counting_compiler(tmp_path, before=f"{output}\nkill -9 $$")
        with pytest.raises(CompileError, match="exit status -9") as caught:
            compile(KERNEL, cpu(), cache_root=tmp_path, compiler=killed)
        assert not isinstance(caught.value, CompileTimeoutError)
        assert caught.value.errors[0] == first
    compiled = compile(KERNEL, cpu(), cache_root=tmp_path, compiler=counting_compiler(tmp_path))
    assert works(compiled.path)


def test_a_compiler_that_never_ends_is_stopped_with_its_children(tmp_path: Path) -> None:
    endless = counting_compiler(tmp_path, before=f'sleep 600 & echo $! > "{tmp_path}/pid"; wait')
    with pytest.raises(CompileTimeoutError, match="stopped after 3 s") as caught:
        compile(
            KERNEL, cpu(), CompileOptions(timeout_seconds=3), cache_root=tmp_path, compiler=endless
        )  # fmt: skip
    assert caught.value.source_path.read_text() == KERNEL
    child = int((tmp_path / "pid").read_text())
    wait_for(lambda: not alive(child))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return state.rpartition(")")[2].split()[0] != "Z"


def test_a_failing_compile_says_what_where_and_how(tmp_path: Path) -> None:
    broken = KERNEL.replace("7.0f;", "nonsense;")
    with pytest.raises(CompileError) as caught:
        compile(broken, cpu(), cache_root=tmp_path)
    error = caught.value
    assert "nonsense" in error.errors[0]
    assert f"{error.source_path}:2" in error.errors[0]
    assert error.source_path.read_text() == broken
    assert shlex.split(error.command)[0] == require(cpu()).executable[0]
    assert str(error.source_path) in error.command
    log = error.log_path.read_text()
    assert log.startswith(error.command)
    assert "nonsense" in log
    assert "\n" not in str(error)
    assert str(error.source_path) in str(error)
    assert not list(error.source_path.parent.glob("*.so"))
    # It crosses processes, as it must from a pool.
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.errors, copy.command) == (str(error), error.errors, error.command)


def test_an_undefined_symbol_is_an_error_at_compile_time_or_load(tmp_path: Path) -> None:
    source = KERNEL.replace("__global__", "float far(); __global__").replace("7.0f;", "far();")
    flags = ("-Wl,--no-undefined",)
    with pytest.raises(CompileError, match="undefined reference"):
        compile(source, cpu(), CompileOptions(flags=flags), cache_root=tmp_path)


def test_what_a_terminal_would_obey_is_not_in_the_lines() -> None:
    assert first_errors("a\n\x1b[31mx.hip:1: error: bad\x07\x1b[0m\n") == (
        "[31mx.hip:1: error: bad  [0m",
    )
    assert first_errors("one\n\ntwo\n") == ("one", "two")
    assert first_errors("") == ()


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove", "meta", "no meta", "no source"])
def test_a_corrupt_artefact_is_rebuilt(damage: str, tmp_path: Path) -> None:
    first = compile(KERNEL, cpu(), cache_root=tmp_path)
    content = first.path.read_bytes()
    meta = first.path.with_suffix(".json")
    match damage:
        case "truncate":
            first.path.write_bytes(content[: len(content) // 2])
        case "flip":
            at = len(content) // 2
            first.path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        case "remove":
            first.path.unlink()
        case "meta":
            meta.write_text('{"format": 1')
        case "no meta":
            meta.unlink()
        case "no source":
            first.path.with_suffix(".hip").unlink()
    again = compile(KERNEL, cpu(), cache_root=tmp_path)
    assert not again.from_cache
    assert works(again.path)
    assert compile(KERNEL, cpu(), cache_root=tmp_path).from_cache
    assert json.loads(meta.read_text())["command"] == again.command


def test_a_folder_that_others_can_write_is_refused(tmp_path: Path) -> None:
    folder = code_folder(tmp_path)
    compile(KERNEL, cpu(), cache_root=tmp_path)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    with pytest.raises(CacheError, match="can write there"):
        compile(KERNEL, cpu(), cache_root=tmp_path)


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    code_folder(tmp_path).parent.mkdir()
    code_folder(tmp_path).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CacheError, match="is a symlink"):
        compile(KERNEL, cpu(), cache_root=tmp_path)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "rocm_tui").write_text("a file")
    with pytest.raises(CacheError, match="a symlink or a file"):
        compile(KERNEL, cpu(), cache_root=tmp_path)


def test_a_rebuild_does_not_touch_a_loaded_library(tmp_path: Path) -> None:
    first = compile(KERNEL, cpu(), cache_root=tmp_path)
    lib = code_cache.load(first.path)
    first.path.with_suffix(".json").unlink()
    assert not compile(KERNEL, cpu(), cache_root=tmp_path).from_cache
    lib.entry("run")


def test_flags_in_the_environment_are_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = Compiler(cuda("sm_90"), "nvcc", ("/usr/local/cuda/bin/nvcc",), "release 12.4")
    monkeypatch.delenv("NVCC_PREPEND_FLAGS", raising=False)
    monkeypatch.setenv("HIPCC_COMPILE_FLAGS_APPEND", "-O1")  # nvcc does not read it
    keys = []
    for flags in ("", "--use_fast_math", ""):
        monkeypatch.setenv("NVCC_APPEND_FLAGS", flags)
        keys.append(toolchain_of(compiler))
    assert keys[0] == keys[2] != keys[1]


def test_a_gpu_library_is_named_for_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts of two architectures may share a cache."""
    keys = set()
    for machine in ("x86_64", "aarch64"):
        monkeypatch.setattr("platform.machine", lambda machine=machine: machine)
        keys.add(code_cache.source_key(KERNEL, cuda("sm_90"), CompileOptions()))
    assert len(keys) == 2


def test_cxx_names_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    found = require(cpu())
    monkeypatch.setenv("CXX", f"{found.executable[0]} -m64")
    assert find_compiler(cpu()) == found
    for missing in ("no-such-compiler", 'g++ "'):
        monkeypatch.setenv("CXX", missing)
        assert isinstance(find_compiler(cpu()), Compiler)


def test_cxx_may_name_a_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = tmp_path / "ccache"
    launcher.write_text('#!/bin/sh\nexec "$@"\n')
    launcher.chmod(0o755)
    monkeypatch.delenv("CXX", raising=False)
    plain = require(cpu())
    monkeypatch.setenv("CXX", f"{launcher} {plain.executable[0]} -m64 -x c++")
    compiler = require(cpu())
    assert compiler.executable == (str(launcher), *plain.executable)
    assert toolchain_of(compiler) == toolchain_of(plain)
    assert works(compile(KERNEL, cpu(), cache_root=tmp_path).path)


def test_a_server_that_a_compiler_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    """Such as that of sccache, which has our pipes."""
    server = f'setsid sleep 60 & echo $! >> "{tmp_path}/pids"; echo "g++ 13"'
    compiler = counting_compiler(tmp_path, before=server)
    options = CompileOptions(timeout_seconds=30)
    try:
        compiled = compile(KERNEL, cpu(), options, cache_root=tmp_path, compiler=compiler)
        assert compiled.log == "g++ 13\n"
        assert version_of(compiler.executable, "") == "g++ 13"
        servers = list(map(int, (tmp_path / "pids").read_text().split()))
        assert list(map(alive, servers)) == [True, True]
    finally:
        for pid in map(int, (tmp_path / "pids").read_text().split()):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("error", [OSError(errno.EAGAIN, "no"), OSError(errno.EMFILE, "no")])
def test_a_version_that_could_not_be_asked_for_is_asked_for_again(
    error: OSError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = counting_compiler(tmp_path)

    def popen(*args: object, **kwargs: object) -> None:
        raise error

    with monkeypatch.context() as busy:
        busy.setattr(subprocess, "Popen", popen)
        assert version_of(compiler.executable, "") is None
        with pytest.raises(ToolchainError, match=r"cannot run .*: no") as caught:
            compile(KERNEL, cpu(), cache_root=tmp_path, compiler=compiler)
        assert not isinstance(caught.value, CompileError)
    assert version_of(compiler.executable, "") is not None
    assert works(compile(KERNEL, cpu(), cache_root=tmp_path, compiler=compiler).path)


def test_a_killed_compiler_is_asked_for_its_version_again(tmp_path: Path) -> None:
    killed = f'rm "{tmp_path}/kill" 2>/dev/null && kill -9 $$'
    compiler = counting_compiler(tmp_path, before=killed)
    (tmp_path / "kill").touch()
    assert version_of(compiler.executable, "") is None
    assert version_of(compiler.executable, "") is not None


def test_a_version_that_takes_long_once_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where all processes of a job are stopped meanwhile."""
    run = subprocess.run
    limits: list[float] = []

    def slow(command: Command, *, timeout: float, **kwargs: Any) -> object:
        limits.append(timeout)
        if len(limits) == 1:
            raise subprocess.TimeoutExpired(command, timeout)
        return run(command, timeout=timeout, **kwargs)

    monkeypatch.setattr(subprocess, "run", slow)
    assert version_of(counting_compiler(tmp_path).executable, "") is not None
    assert len(limits) == 2 and limits[0] > 20
