"""The private folder of a traced program: bounded, and gone or handed back in the end."""

from __future__ import annotations

import errno
import functools
import hashlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocm_tui.actions.verify_program import TraceFolder
from rocm_tui.ingest.formats.torch_trace import TraceCode

WRITER = """
import os, sys
with open(os.path.join(os.environ["TORCH_TRACE"], sys.argv[1]), "wb") as stream:
    for at in range(64):
        stream.write(b"%08d" % at * 8192)
        stream.flush()
        print(at, flush=True)
        sys.stdin.readline()
"""


def test_what_is_beyond_the_limit_goes_back_to_the_disk(tmp_path: Path) -> None:
    """A real process writes on and on, and notices nothing."""
    most = 1 << 20
    with TraceFolder({"TMPDIR": str(tmp_path)}, most) as folder:
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, "a.log"],
            env=folder.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as writer:
            assert writer.stdin is not None and writer.stdout is not None
            for _ in writer.stdout:
                folder.look()
                used = sum(path.stat().st_blocks * 512 for path, _ in folder.files())
                assert used <= most + (1 << 18)
                writer.stdin.write("\n")
                writer.stdin.flush()
        assert writer.returncode == 0 and folder.full
        ((path, kept),) = folder.files()
        assert kept is not None and most <= kept <= most + (1 << 18)
        data = path.read_bytes()
        assert data[:kept] == b"".join(b"%08d" % at * 8192 for at in range(64))[:kept]
        (folder.path / "late.log").write_bytes(b"x")
        assert dict(folder.files())[folder.path / "late.log"] == 0
    assert not folder.path.exists()


def test_the_folder_of_a_person_gets_its_files(tmp_path: Path) -> None:
    for name, env in (
        ("TORCH_TRACE", {"TORCH_TRACE": str(tmp_path / "a" / "mine")}),
        ("TORCH_DTRACE", {"TORCH_TRACE": "/nowhere", "TORCH_DTRACE": str(tmp_path / "mine")}),
    ):
        with TraceFolder(env, most=1) as folder:
            assert list(folder.env) == [name]
            (folder.path / "one.log").write_bytes(b"x" * 9000)
            folder.look()
            assert not folder.full, "theirs has no limit"
        assert [path.name for path in Path(env[name]).iterdir()] == ["one.log"]
        assert (Path(env[name]) / "one.log").stat().st_size == 9000


def test_a_trace_that_cannot_be_looked_at_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TraceFolder({"TMPDIR": str(tmp_path)}) as folder:
        for name in ("a.log", "b.log", "c.log"):
            (folder.path / name).write_bytes(b"x")
        stock = os.stat

        def failing(path: Any, **how: Any) -> os.stat_result:
            if str(path).endswith("b.log"):
                raise OSError(errno.ESTALE, "stale file handle")
            return stock(path, **how)

        monkeypatch.setattr(os, "stat", failing)
        monkeypatch.setattr(os, "lstat", functools.partial(failing, follow_symlinks=False))
        assert [path.name for path, _ in folder.files()] == ["a.log", "c.log"]
        assert folder.unread == 1
        monkeypatch.undo()
        assert len(folder.files()) == 3 and folder.unread == 0


def record(name: str, payload: bytes, frame: int = 0, kind: str = "") -> bytes:
    head = {kind: {"name": name}} if kind else {name: {}}
    digest = hashlib.md5(payload).hexdigest()
    line = json.dumps({**head, "frame_id": frame, "attempt": 0, "has_payload": digest})
    text = b"".join(b"\t" + part + b"\n" for part in payload.split(b"\n"))
    return b"V1120 10:10:29.070000 6512 torch/x.py:1] " + line.encode() + b"\n" + text


def test_two_compiles_at_once_keep_their_graphs_apart() -> None:
    """Threads of one process: the records of one compile stand between those of another."""
    log = b"".join(
        [
            record("inductor_post_grad_graph", b"graph of 1", 1, "artifact"),
            record("after_post_grad_graph", b"graph of 2", 2, "artifact"),
            record("fx_graph_runnable", b"settings of 2", 2, "artifact"),
            record("dynamo_guards", b"anything", 1),
            record("inductor_output_code", b"code of 1\n  more", 1),
            record("inductor_output_code", b"code of 2", 2),
            record("inductor_output_code", b"backward of 2", 2),
        ]
    )
    reader = TraceCode()
    assert list(reader.read(io.BytesIO(log))) == [
        b"code of 1\n  more\n\ngraph of 1",
        b"code of 2\nsettings of 2\ngraph of 2",
        b"backward of 2\n\n",
    ]
    assert reader.damaged == 0


def test_what_was_said_in_compiles_without_an_end_is_forgotten() -> None:
    """The oldest first, so that a long run takes no more and more memory."""
    said = [record("fx_graph_runnable", b"settings", frame, "artifact") for frame in range(9999)]
    ends = [record("inductor_output_code", b"code", frame) for frame in (0, 9998)]
    texts = list(TraceCode().read(io.BytesIO(b"".join([*said, *ends]))))
    assert texts == [b"code\n\n", b"code\nsettings\n"]


@given(
    st.lists(st.sampled_from([b"\t", b"\n", b'{"inductor_output_code"', b": {}}", b"[", b"\xff"]))
)
def test_no_bytes_stop_it(parts: list[bytes]) -> None:
    assert list(TraceCode().read(io.BytesIO(b"".join(parts)))) == []


@given(st.integers(0, 400))
@example(149)
@example(391)
def test_what_was_cut_off_is_counted_or_not_there(at: int) -> None:
    log = record("inductor_output_code", b"code\n" * 40)
    reader = TraceCode()
    found = list(reader.read(io.BytesIO(log), at))
    whole = at >= len(log)
    begun = at >= log.index(b"\n")  # its first line is there, if without its end
    assert (len(found), reader.damaged) == ((1, 0) if whole else (0, int(begun)))
