"""Ranks that are killed, stopped, or asked other things than the others; forked from one process
that has PyTorch loaded, which is told a scene and a cache dir each line of its input.

A rank's choices are calls of ATen alone, so that nothing is compiled; what `offered` names takes as
long as the next, and which is the fastest is chance.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from backend.disk.layout import Layout
from backend.ranks.job import AGREE

PATIENCE = 60.0
LIMIT = 2
"""Seconds that a rank waits for one that is stopped."""
SETTINGS = {
    "max_autotune": True,
    "max_autotune_gemm_backends": "ATEN",
    "fx_graph_cache": False,  # else a rank takes the graph, and the choice, of another
}
_offered: list[str] = []
PRODUCTS = ((2, 8, 8), (2, 16, 8), (2, 8, 16))
"""Batch, rows, inner size."""


def at_once() -> None:
    """Nothing is waited for."""


_before: Callable[[], None] = at_once


def prepare() -> None:
    """Choices of our own beside ATen's, by their names."""
    import torch
    from torch._inductor import select_algorithm as select

    def called(left: Any, right: Any, *, out: Any) -> Any:
        _before()
        return torch.bmm(left, right, out=out)

    others = {name: select.ExternKernelChoice(called, name=name) for name in "wxyz"}

    def offer(choices: list[Any]) -> list[Any]:
        nodes, layout = choices[0].input_nodes, choices[0].layout
        return [others[name].bind(nodes, layout) for name in _offered]

    select.add_preprocessing_fn(offer)


def rank(
    number: int, size: int, cache: Path, offered: Sequence[str], rows: int, limit: float = PATIENCE
) -> int:
    """Fork a rank that compiles a product of matrices of so many rows; its pid. It waits for others
    for `limit` seconds."""
    pid = os.fork()
    if pid:
        return pid
    told = {"RANK": number, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, AGREE: limit}
    os.environ |= {name: str(value) for name, value in told.items()}
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
    status = 1
    try:
        _compile(offered, rows)
        from backend.inductor.hooks.recording import recorder

        recorder().end_in(os.getpid())
        status = 0
    finally:
        os._exit(status)


def _compile(offered: Sequence[str], rows: int) -> None:
    import torch
    import torch._inductor.config as config

    _offered[:] = offered
    torch._dynamo.reset()
    with config.patch(SETTINGS):
        torch.compile(torch.bmm)(torch.randn(2, rows, 8), torch.randn(2, 8, 8))


def job(cache: str) -> None:
    """A rank that torchrun's agent has forked: it compiles several products at once."""
    import torch
    import torch._inductor.config as config
    import torch.distributed as dist

    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    _offered[:] = ["x", "y"]
    torch._dynamo.reset()
    dist.init_process_group("gloo")
    pairs = [(torch.randn(b, m, k), torch.randn(b, k, 8)) for b, m, k in PRODUCTS]
    with config.patch(SETTINGS):
        torch.compile(lambda pairs: [torch.bmm(*pair) for pair in pairs])(pairs)
    total = torch.tensor(1.0)
    dist.all_reduce(total)
    assert total.item() == dist.get_world_size()
    dist.destroy_process_group()


def launch(cache: Path, size: int) -> None:
    """A job as torchrun starts it: its agent, its store, the environment of its ranks."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    settings = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=size, run_id=cache.name, rdzv_backend="c10d",
        rdzv_endpoint="localhost:0", max_restarts=0, monitor_interval=0.1, start_method="fork",
    )  # fmt: skip
    elastic_launch(settings, job)(str(cache))


def agents(cache: Path, work: Callable[[str], None]) -> list[int]:
    """Fork two agents of torchrun with one rank each, as on two hosts: each has a cache dir of its
    own below `cache`."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    pids = []
    for number in range(2):
        settings = LaunchConfig(
            min_nodes=2, max_nodes=2, nproc_per_node=1, run_id=cache.name, rdzv_backend="c10d",
            rdzv_endpoint=f"localhost:{port}", rdzv_configs={"is_host": not number},
            max_restarts=0, monitor_interval=0.1, start_method="fork", local_addr="localhost",
        )  # fmt: skip
        pid = os.fork()
        if not pid:
            status = 1
            try:
                elastic_launch(settings, work)(str(cache / f"host-{number}"))
                status = 0
            finally:
                os._exit(status)
        pids.append(pid)
    return pids


def hosts(cache: Path) -> None:
    for pid in agents(cache, job):
        wait_for(pid)


def orphan(cache: str) -> None:
    """Rank 0 claims a problem and does not get on; rank 1 waits for it, while the agent that serves
    the store is killed."""
    global _before
    folder, number = Path(cache).parent, int(os.environ["RANK"])
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    if number:
        while not (folder / "claimed").exists():
            time.sleep(0.01)
    else:
        (folder / "server").write_text(f"{os.getpid()} {os.getppid()}")

        def hang() -> None:
            (folder / "claimed").touch()
            time.sleep(PATIENCE)

        _before = hang
    _compile(("x", "y"), 8)
    (folder / "gone on").touch()


def server_killed(cache: Path) -> None:
    cache.mkdir()
    pids = agents(cache, orphan)
    until((cache / "claimed").exists, "rank 0 claims a problem")
    time.sleep(0.5)  # rank 1 waits
    rank_0, server = map(int, (cache / "server").read_text().split())
    (agent_1,) = set(pids) - {server}
    os.kill(agent_1, signal.SIGSTOP)  # else it ends rank 1 as soon as it misses the store itself
    for pid in (server, rank_0):
        os.kill(pid, signal.SIGKILL)
    until((cache / "gone on").exists, "rank 1 goes on")
    os.kill(agent_1, signal.SIGCONT)
    for pid in pids:
        os.waitpid(pid, 0)


def wait_for(pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"a rank ended with {status}"


def until(true: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, f"not in {PATIENCE:.0f} s: {what}"
        time.sleep(0.01)


def there(cache: Path, name: str) -> None:
    """Wait until a rank has written this note."""
    until(lambda: [*Layout(cache).ranks.glob(f"*/{name}")], f"a rank writes {name}")


def awaited(cache: Path) -> None:
    """Wait until a rank has recorded that it waits for another."""
    logs = Layout(cache).sessions
    until(lambda: any(b'"rank_awaited"' in p.read_bytes() for p in logs.glob("*")), "a rank waits")


def blocked(cache: Path) -> Callable[[], None]:
    """What lasts until the file `go` is there."""

    def block() -> None:
        while not (cache / "go").exists():
            time.sleep(0.01)

    return block


def alike(cache: Path, size: int) -> None:
    for pid in [rank(n, size, cache, ("x", "y"), 8) for n in range(size)]:
        wait_for(pid)


def interrupted(cache: Path, number: signal.Signals) -> None:
    """Rank 0 is sent a signal while it times its choices and rank 1 waits."""
    global _before
    _before = blocked(cache)
    first = rank(0, 2, cache, ("x", "y"), 8)
    _before = at_once
    there(cache, "*.claim-0")
    limit = LIMIT if number == signal.SIGSTOP else PATIENCE
    second = rank(1, 2, cache, ("x", "y"), 8, limit)
    awaited(cache)
    time.sleep(0.3)  # it waits
    os.kill(first, number)
    if number == signal.SIGKILL:
        os.waitpid(first, 0)
    wait_for(second)
    if number == signal.SIGSTOP:
        (cache / "go").touch()
        os.kill(first, signal.SIGCONT)
        wait_for(first)


def waiting(cache: Path) -> None:
    """Rank 0 times its choices, and rank 1 waits, until there is a file `go`."""
    global _before
    _before = blocked(cache)
    first = rank(0, 2, cache, ("x", "y"), 8)
    _before = at_once
    there(cache, "*.claim-0")
    second = rank(1, 2, cache, ("x", "y"), 8)
    for pid in (first, second):
        wait_for(pid)


def other_problems(cache: Path) -> None:
    """Neither rank ends before it has met the other."""
    global _before
    _before = blocked(cache)
    first = rank(0, 2, cache, ("x", "y"), 8)
    there(cache, "rank-0")
    second = rank(1, 2, cache, ("x", "y"), 16)
    _before = at_once
    there(cache, "rank-1")
    (cache / "go").touch()
    for pid in (first, second):
        wait_for(pid)


def other_choices(cache: Path) -> None:
    """Rank 0 has x or w, ranks 1 and 2 neither of them: they find that out, and agree at least with
    each other."""
    wait_for(rank(0, 3, cache, ("x", "w"), 8))
    for pid in [rank(n, 3, cache, ("y", "z"), 8) for n in (1, 2)]:
        wait_for(pid)


def no_folder(cache: Path) -> None:
    """Something is in the way of the folder where they meet."""
    (cache / "rocm_tui").mkdir(parents=True)
    (cache / "rocm_tui" / "ranks").write_text("")
    alike(cache, 2)


SCENES: dict[str, Callable[[Path], None]] = {
    "launched": lambda cache: launch(cache, 2),
    "eight": lambda cache: alike(cache, 8),
    "killed": lambda cache: interrupted(cache, signal.SIGKILL),
    "stopped": lambda cache: interrupted(cache, signal.SIGSTOP),
    "hosts": hosts,
    "server killed": server_killed,
    "waiting": waiting,
    "other problems": other_problems,
    "other choices": other_choices,
    "no folder": no_folder,
}


def main() -> None:
    import torch

    torch.set_num_threads(1)
    prepare()
    if sys.argv[1:2] == ["--starts"]:
        count, size, folder = sys.argv[2:]
        for number in range(int(count)):
            launch(Path(folder, f"start-{number}"), int(size))
        return
    for line in sys.stdin:
        scene, cache = json.loads(line)
        began = time.monotonic()
        try:
            SCENES[scene](Path(cache))
            print(json.dumps(["done", time.monotonic() - began]), flush=True)
        except Exception as error:
            print(json.dumps(["failed", repr(error)]), flush=True)


if __name__ == "__main__":
    main()
