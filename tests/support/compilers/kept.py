"""The real g++, asked once for each source: what it made before is handed out again.

Most of a test run would be g++ compiling the very same Inductor kernels for each fresh cache dir.
The key holds all that the result depends on: the compiler, every argument but the output's name,
the source's text and the headers of ours. A call of any other form goes to g++ as it is, and what
failed is never kept. Kernels of ours are compiled without optimizations, which takes a fifth of
the time; with KERNELS_OPTIMIZED or TEST_EVERYTHING in the environment, with those asked for. The
header that Inductor's kernels begin with is half of what g++ does for them: where Inductor does
not, it is compiled before, once. With COMPILE_ANEW in the environment g++ itself is asked. What is
asked for is told to the file COMPILE_LOG, a line a command. hasten.py puts this folder first on
PATH.
"""

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
KEPT = ROOT / "build" / "cxx"
KERNELS = ROOT / "backend" / "toolchain" / "include" / "cpu"
HEADER = "torch/csrc/inductor/cpp_prefix.h"


def real() -> str:
    path = os.pathsep.join(
        part for part in os.environ["PATH"].split(os.pathsep) if pathlib.Path(part) != HERE
    )
    return shutil.which("g++", path=path) or sys.exit("g++: not found")


def key(compiler: str, args: list[str]) -> tuple[str, pathlib.Path] | None:
    """What names the result, and where it is wanted; None where this call is not kept."""
    sources = [arg for arg in args if arg.endswith((".cpp", ".hpp", ".hip"))]
    if len(sources) != 1 or args.count("-o") != 1 or any(arg.startswith("@") for arg in args):
        return None
    at = args.index("-o")
    text = pathlib.Path(sources[0]).read_bytes()
    stat = pathlib.Path(compiler).stat()
    found = hashlib.sha256(f"{compiler} {stat.st_size} {stat.st_mtime_ns}".encode())
    rest = ["<source>" if arg == sources[0] else arg for arg in [*args[:at], *args[at + 2 :]]]
    found.update("\0".join(rest).encode())
    found.update(text)
    own = False
    for arg in rest:
        folder = pathlib.Path(arg[2:])
        if arg.startswith("-I") and folder.is_relative_to(ROOT) and ".venv" not in folder.parts:
            own = True
            for header in sorted(folder.rglob("*.h*")):
                found.update(header.read_bytes())
    if b'#include "' in text and not own:
        return None
    return found.hexdigest(), pathlib.Path(args[at + 1])


def main() -> int:
    compiler, args = real(), sys.argv[1:]
    if (log := os.environ.get("COMPILE_LOG")) and "-o" in args:
        with pathlib.Path(log).open("a") as told_to:
            told_to.write(" ".join(args) + "\n")
    if f"-I{KERNELS}" in args and not {"KERNELS_OPTIMIZED", "TEST_EVERYTHING"} & {*os.environ}:
        args = ["-O0" if arg == "-O2" else arg for arg in args]
    try:
        named = key(compiler, args)
    except OSError:
        named = None
    if named is None or "COMPILE_ANEW" in os.environ:
        os.execv(compiler, [compiler, *args])
    name, output = named
    kept, told = KEPT / name, KEPT / f"{name}.stderr"
    if kept.exists():
        shutil.copyfile(kept, output)
        output.chmod(0o755)
        sys.stderr.buffer.write(told.read_bytes())
        return 0
    done = subprocess.run([compiler, *prefix(compiler, args), *args], stderr=subprocess.PIPE)
    sys.stderr.buffer.write(done.stderr)
    if done.returncode == 0 and output.is_file():
        keep(told, done.stderr)
        keep(kept, output.read_bytes())
    return done.returncode


def prefix(compiler: str, args: list[str]) -> list[str]:
    """The arguments that bring Inductor's header compiled, for a kernel that begins with it."""
    (source,) = (arg for arg in args if arg.endswith((".cpp", ".hpp", ".hip")))
    begins = pathlib.Path(source).read_bytes().lstrip().startswith(f"#include <{HEADER}>".encode())
    if not begins or "-include" in args or "-shared" not in args:
        return []
    at = args.index("-o")
    flags = [
        arg
        for arg in [*args[:at], *args[at + 2 :]]
        if arg not in (source, "-shared") and not arg.startswith(("-l", "-L"))
    ]
    found = hashlib.sha256("\0".join([compiler, *flags]).encode())
    headers = [pathlib.Path(flag[2:], HEADER) for flag in flags if flag.startswith("-I")]
    for path in (pathlib.Path(compiler), *headers):
        if path.exists():
            found.update(f"{path.stat().st_size} {path.stat().st_mtime_ns}".encode())
    folder = KEPT / f"{found.hexdigest()}.prefix"
    if not folder.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        made = pathlib.Path(tempfile.mkdtemp(dir=KEPT))
        header = made / "prefix.h"
        header.write_text(f"#include <{HEADER}>\n")
        command = [compiler, "-x", "c++-header", str(header), *flags, "-o", f"{header}.gch"]
        done = subprocess.run(command, stderr=subprocess.DEVNULL)
        if done.returncode:
            shutil.rmtree(made)
            return []
        try:
            made.rename(folder)
        except OSError:  # another was faster
            shutil.rmtree(made)
    return ["-include", str(folder / "prefix.h")]


def keep(path: pathlib.Path, data: bytes) -> None:
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=KEPT, delete=False) as copy:
        copy.write(data)
    pathlib.Path(copy.name).replace(path)


sys.exit(main())
