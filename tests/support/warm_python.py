"""Python with PyTorch imported: `[*warm_python(), "-c", PROGRAM]` starts as fast as a shell.

Importing PyTorch and what a first compile needs costs five seconds, a fork of a process that has
done so costs none. The command passes its arguments, environment, folder and open files to such a
process, which forks for each, and ends as the fork ends. A fork is as good as a process of its
own where the question is what stock PyTorch does and what it reads back from disk: the process has
compiled nothing but a trivial function, on a cache dir of its own. Under `rocm-tui run` our hooks
come as to a program that imported all of it before. It is not as good where the question is what
happens at `import torch`.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

_LATE = ("TORCHINDUCTOR_CACHE_DIR", "TORCH_LOGS", "TORCH_TRACE")
"""Variables that PyTorch reads again later, or that we make it read again."""


@functools.cache
def warm_python() -> list[str]:
    """The command, up to `-c PROGRAM`, `-m MODULE` or a file's name; the first call starts it."""
    from tests.support.torch_models import child_env

    folder = tempfile.TemporaryDirectory(prefix="warm-")
    path = str(Path(folder.name) / "socket")
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", __file__, "serve", path],
        env=child_env(Path(folder.name) / "cache"),
        stdin=subprocess.PIPE,  # it ends when we end
        start_new_session=True,  # Ctrl-C is for those who ask
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None and server.stdout.readline() == b"ready\n"

    def end() -> None:
        server.communicate()
        folder.cleanup()

    atexit.register(end)
    return [sys.executable, "-I", "-S", __file__, "ask", path]


def _serve(path: str) -> None:
    """Fork for each request, until stdin ends."""
    _warm_up()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                _attend(connection)
            connection.close()
            _reap()


def _reap() -> None:
    """No zombies stay but the last."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _warm_up() -> None:
    """Import what a compile needs, and find out what this CPU can do."""
    import torch
    import torch._inductor.select_algorithm
    from torch._inductor import config

    torch.set_num_threads(1)  # no other thread survives a fork
    config.compile_threads = 1
    torch.compile(lambda a: a * 2 + 1)(torch.ones(64))
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


def _attend(connection: socket.socket) -> NoReturn:
    """Run one request in a further fork; say how it ended. Who asked and is gone, ends it."""
    request, files = _receive(connection)
    ended, held = os.pipe()
    pid = os.fork()
    if pid == 0:
        connection.close()
        for i, file in enumerate(files):
            os.dup2(file, i)
            os.close(file)
        _run(request)
    for file in (*files, held):
        os.close(file)
    for i in range(3):  # not the server's, whose end others wait for
        os.dup2(os.open(os.devnull, os.O_RDWR), i)
    if connection in select.select([connection, ended], [], [])[0]:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        connection.sendall(str(code).encode())
    os._exit(0)


def _receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What `_ask` sent: the request and three open files."""
    files = array.array("i")
    data, ancillary, _, _ = connection.recvmsg(8, socket.CMSG_LEN(3 * files.itemsize))
    for _, _, content in ancillary:
        files.frombytes(content)
    size = int.from_bytes(data, "big")
    with connection.makefile("rb") as stream:
        request: dict[str, Any] = json.loads(stream.read(size))
    return request, list(files)


def _run(request: dict[str, Any]) -> NoReturn:
    """Be the program and end with it. Taking a copy of all of PyTorch apart takes seconds."""
    code: object = 1
    try:
        os.chdir(request["cwd"])
        _enter(request["env"])
        _execute(request["argv"])
        code = 0
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def _enter(env: dict[str, str]) -> None:
    """Make the environment `env`. Raises ValueError where it asks for what a fork cannot do."""
    import torch

    def fixed(variables: Any) -> dict[str, str]:
        return {
            name: value
            for name, value in variables.items()
            if name.startswith(("TORCH", "PYTHON", "OMP")) and name not in (*_LATE, "PYTHONPATH")
        }

    if fixed(env) != fixed(os.environ):
        raise ValueError(f"PyTorch was imported with {fixed(os.environ)}, not with {fixed(env)}")
    before, after = (e.get("PYTHONPATH", "").split(os.pathsep) for e in (os.environ, env))
    more = [folder for folder in after if folder not in before]
    os.environ.clear()
    os.environ.update(env)
    if more:  # what `rocm-tui run` puts there: torch looks for it at the end of its import
        sys.path[1:1] = more
        torch._import_device_backends()
    if "TORCH_LOGS" in env or "TORCH_TRACE" in env:
        torch._logging._internal.LOG_TRACE_HANDLER = None
        torch._logging._internal._init_logs()


def _execute(argv: list[str]) -> None:
    """As `python ARGV` does: `-c PROGRAM`, `-m MODULE` or a file, each with its arguments."""
    import runpy

    kind, rest = argv[0], argv[1:]
    if kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    elif kind == "-m":
        sys.argv = rest
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = argv
        sys.path.insert(0, str(Path(kind).parent))
        runpy.run_path(kind, run_name="__main__")


def _ask(path: str, argv: list[str]) -> int:
    """Let a fork be this process; its exit code, 128 + its signal if one killed it."""
    request = {"argv": argv, "env": dict(os.environ), "cwd": str(Path.cwd())}
    data = json.dumps(request).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        files = array.array("i", range(3))
        size = len(data).to_bytes(8, "big")
        connection.sendmsg([size], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
        connection.sendall(data)
        code = int(connection.recv(16) or b"1")
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve(sys.argv[2])
    else:
        sys.exit(_ask(sys.argv[2], sys.argv[3:]))
