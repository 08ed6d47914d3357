"""A compiler cache: the real g++ compiles each source once, later calls get the stored result.

Most of a test run would be g++ compiling the very same Inductor kernels for each fresh cache dir.
The key holds all that the result depends on: the compiler, every argument but the output's name,
the source's text and our headers; paths in it are relative to the tree, so that copies of a tree
can share one cache. A call of any other form goes to g++ unchanged, and failures are not stored.
Our kernels are compiled without optimizations, which takes a fifth of the time; KERNELS_OPTIMIZED
or TEST_EVERYTHING in the environment keeps the requested ones. The header that Inductor's kernels
begin with is half of g++'s work for them: it is precompiled once where Inductor does not do so.
COMPILE_ANEW in the environment turns the cache off. COMPILE_LOG names a file that gets a line for
each command. hasten.py puts this folder first on PATH.
"""

# pathlib, shutil and subprocess take as long to import as all the rest of a call that is answered.

import hashlib
import os
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
KEPT = os.path.join(ROOT, "build", "cxx")
KERNELS = os.path.join(ROOT, "backend", "toolchain", "include", "cpu")
HEADER = "torch/csrc/inductor/cpp_prefix.h"


def real() -> str:
    for folder in os.environ["PATH"].split(os.pathsep):
        found = os.path.join(folder, "g++")
        if os.path.realpath(folder) != HERE and os.access(found, os.X_OK):
            return found
    sys.exit("g++: not found")


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def source_of(args: list[str]) -> str | None:
    """The one source; None where there are none or several."""
    sources = [arg for arg in args if arg.endswith((".cpp", ".hpp", ".hip"))]
    return sources[0] if len(sources) == 1 else None


def key(compiler: str, args: list[str]) -> tuple[str, str] | None:
    """Where the result is kept, and where it is wanted; None where this call is not kept."""
    source = source_of(args)
    if source is None or args.count("-o") != 1 or any(arg.startswith("@") for arg in args):
        return None
    at = args.index("-o")
    text = read(source)
    stat = os.stat(compiler)
    found = hashlib.sha256(f"{compiler} {stat.st_size} {stat.st_mtime_ns}".encode())
    rest = ["<source>" if arg == source else arg for arg in [*args[:at], *args[at + 2 :]]]
    found.update("\0".join(rest).replace(ROOT + os.sep, "<tree>/").encode())
    found.update(text)
    own = False
    for arg in rest:
        folder = os.path.normpath(arg[2:])
        below = folder.removeprefix(ROOT + os.sep)
        if arg.startswith("-I") and below != folder and ".venv" not in below.split(os.sep):
            own = True
            for path in headers(folder):
                found.update(read(path))
    if b'#include "' in text and not own:
        return None
    return os.path.join(KEPT, found.hexdigest()), args[at + 1]


def headers(folder: str) -> list[str]:
    """All below the folder."""
    return sorted(
        os.path.join(where, name)
        for where, _, names in os.walk(folder)
        for name in names
        if os.path.splitext(name)[1].startswith(".h")
    )


def main() -> int:
    compiler, args = real(), sys.argv[1:]
    if (log := os.environ.get("COMPILE_LOG")) and "-o" in args:
        with open(log, "a") as told_to:
            told_to.write(" ".join(args) + "\n")
    if "TEST_CPU" in os.environ:  # ../quick/avx2_cpu.py
        args = ["-march=x86-64-v3" if arg == "-march=native" else arg for arg in args]
    if f"-I{KERNELS}" in args and not {"KERNELS_OPTIMIZED", "TEST_EVERYTHING"} & {*os.environ}:
        args = ["-O0" if arg == "-O2" else arg for arg in args]
    try:
        named = key(compiler, args)
    except OSError:
        named = None
    if named is None or "COMPILE_ANEW" in os.environ:
        os.execv(compiler, [compiler, *args])
    kept, output = named
    if os.path.exists(kept):
        data, told = read(kept), read(f"{kept}.stderr")
        with open(output, "wb") as made:
            made.write(data)
        os.chmod(output, 0o755)
        sys.stderr.buffer.write(told)
        return 0
    return compile_and_keep(compiler, args, kept, output)


def compile_and_keep(compiler: str, args: list[str], kept: str, output: str) -> int:
    import subprocess

    done = subprocess.run([compiler, *prefix(compiler, args), *args], stderr=subprocess.PIPE)
    sys.stderr.buffer.write(done.stderr)
    if done.returncode == 0 and os.path.isfile(output):
        keep(f"{kept}.stderr", done.stderr)
        keep(kept, read(output))
    return done.returncode


def prefix(compiler: str, args: list[str]) -> list[str]:
    """The arguments that bring Inductor's header compiled, for a kernel that begins with it."""
    import shutil
    import subprocess
    import tempfile

    source = source_of(args)
    assert source is not None
    begins = read(source).lstrip().startswith(f"#include <{HEADER}>".encode())
    if not begins or "-include" in args or "-shared" not in args:
        return []
    at = args.index("-o")
    flags = [
        arg
        for arg in [*args[:at], *args[at + 2 :]]
        if arg not in (source, "-shared") and not arg.startswith(("-l", "-L"))
    ]
    found = hashlib.sha256("\0".join([compiler, *flags]).encode())
    paths = [os.path.join(flag[2:], HEADER) for flag in flags if flag.startswith("-I")]
    for path in filter(os.path.exists, (compiler, *paths)):
        found.update(f"{os.stat(path).st_size} {os.stat(path).st_mtime_ns}".encode())
    folder = os.path.join(KEPT, f"{found.hexdigest()}.prefix")
    if not os.path.exists(folder):
        os.makedirs(KEPT, exist_ok=True)
        made = tempfile.mkdtemp(dir=KEPT)
        header = os.path.join(made, "prefix.h")
        with open(header, "w") as file:
            file.write(f"#include <{HEADER}>\n")
        command = [compiler, "-x", "c++-header", header, *flags, "-o", f"{header}.gch"]
        done = subprocess.run(command, stderr=subprocess.DEVNULL)
        if done.returncode:
            shutil.rmtree(made)
            return []
        try:
            os.rename(made, folder)
        except OSError:  # another was faster
            shutil.rmtree(made)
    return ["-include", os.path.join(folder, "prefix.h")]


def keep(path: str, data: bytes) -> None:
    os.makedirs(KEPT, exist_ok=True)
    new = f"{path}.{os.getpid()}"
    with open(new, "wb") as copy:
        copy.write(data)
    os.replace(new, path)


sys.exit(main())
