"""The store of a job whose server ends, is silent, or was never there."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.inductor.hooks import agreement as boards
from backend.inductor.hooks.agreement import StoreBoard
from backend.ranks import job
from backend.ranks.job import AGREE, FOLDER, BoardUnavailable, FolderBoard

pytestmark = pytest.mark.torch

SERVE = """
import time
from torch.distributed import TCPStore
store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
time.sleep(600)
"""


@pytest.fixture
def server() -> Iterator[tuple[subprocess.Popen[str], int]]:
    command = [sys.executable, "-W", "ignore", "-c", SERVE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, int(process.stdout.readline())
        process.kill()


def several_hosts(port: int, **more: str) -> dict[str, str]:
    agent = {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RUN_ID": "job", AGREE: "7"}
    return {"LOCAL_WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)} | (
        agent | more
    )


def test_a_server_that_is_silent_or_gone_is_told_in_time_and_not_asked_again(
    server: tuple[subprocess.Popen[str], int],
) -> None:
    process, port = server
    silent, gone = (StoreBoard("localhost", port, "job") for _ in range(2))
    assert silent.put("note", b"text") and gone.read("note") == b"text"
    silent._seconds = 0.5
    process.send_signal(signal.SIGSTOP)
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.01)
    began = time.monotonic()
    with pytest.raises(BoardUnavailable, match=f"localhost:{port} does not answer for 0.5 s"):
        silent.read("note")
    assert time.monotonic() - began > 0.4
    process.kill()
    process.wait()
    with pytest.raises(BoardUnavailable, match=f"localhost:{port} cannot be reached"):
        gone.read("note")
    for board in (silent, gone):
        board._calls = queue.SimpleQueue()
        board.beat("note")
        for _ in range(20):
            with pytest.raises(BoardUnavailable):
                board.put("note", b"again")
        assert board._calls.empty()  # the store was not called again


def test_a_port_where_nobody_listens_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """TCPStore would try again and again, so it is not asked."""

    def unwanted(*_: object, **__: object) -> None:
        raise AssertionError("TCPStore was asked to connect")

    monkeypatch.setattr("torch.distributed.TCPStore", unwanted)
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        port = taken.getsockname()[1]
        with pytest.raises(
            BoardUnavailable, match=f"localhost:{port} cannot be reached: Connection refused"
        ):
            boards.board_of(2, Layout(Path("/none")), several_hosts(port))


def test_one_that_listens_and_says_nothing_is_given_up() -> None:
    with socket.create_server(("localhost", 0)) as mute:
        began = time.monotonic()
        with pytest.raises(BoardUnavailable, match="the store at"):
            StoreBoard("localhost", mute.getsockname()[1], "job", 0.5)
        assert time.monotonic() - began < 60


def test_which_way_ranks_meet(server: tuple[subprocess.Popen[str], int], tmp_path: Path) -> None:
    _, port = server
    layout, hosts = Layout(tmp_path), several_hosts(port)
    here = boards.board_of(2, layout, hosts | {"LOCAL_WORLD_SIZE": "2"})
    named = boards.board_of(2, layout, hosts | {FOLDER: str(tmp_path)})
    assert isinstance(here, FolderBoard) and str(named) == str(tmp_path.resolve())
    ours = boards.board_of(2, layout, hosts)
    assert isinstance(ours, StoreBoard) and str(ours) == f"the store at localhost:{port}"
    assert ours.put("note", b"text")
    again = boards.board_of(2, layout, hosts | {"TORCHELASTIC_RESTART_COUNT": "1"})
    assert again.read("note") == b"text"  # agents need not count alike
    other = boards.board_of(2, layout, hosts | {"TORCHELASTIC_RUN_ID": "other"})
    assert other.read("note") is None


GROUP = """
import sys
from pathlib import Path
import torch.distributed as dist
from backend.disk.layout import Layout
from backend.inductor.hooks import agreement as boards
try:
    boards.board_of(2, Layout(Path("/none")))
except boards.BoardNotReady as error:
    print(error)
dist.init_process_group("gloo")
board = boards.board_of(2, Layout(Path("/none")))
print(board, board.put("note", b"text"))
dist.barrier()
dist.destroy_process_group()
"""


def test_without_an_agent_s_store_the_one_of_the_process_group_is_used() -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    told = several_hosts(port, WORLD_SIZE="2", TORCHELASTIC_USE_AGENT_STORE="False")
    command = [sys.executable, "-W", "ignore", "-c", GROUP]
    ranks = [
        subprocess.Popen(
            command, env={**os.environ, **told, "RANK": rank}, stdout=subprocess.PIPE, text=True
        )
        for rank in "01"
    ]
    said = [rank.communicate(timeout=240)[0].splitlines() for rank in ranks]
    assert all("call init_process_group before" in lines[0] for lines in said)
    met = sorted(lines[1] for lines in said)
    assert met == [f"the store at localhost:{port} {first}" for first in (False, True)]


def test_ranks_of_one_host_whose_launcher_is_not_seen_do_not_meet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job, "launcher", lambda env: "")
    with pytest.raises(BoardUnavailable, match="name a folder for this job with --agree-dir"):
        boards.board_of(2, Layout(Path("/none")), {"LOCAL_WORLD_SIZE": "2"})
