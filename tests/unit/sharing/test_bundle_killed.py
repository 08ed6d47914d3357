"""What is left of a bundle that is killed on its way, or for which the disk is too small."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from backend.disk import safe
from backend.disk.layout import Layout
from backend.errors import NotWritable
from backend.pins.leftovers import Leftovers, leftovers
from backend.pins.store import PinStore
from backend.sharing.bundle.arrive import is_unfinished
from rocm_tui.actions import doctor
from rocm_tui.cli.entry import main
from tests.support.bundle_lab import (
    FILES,
    LIBRARY,
    PIN,
    packed,
    placed,
    taken,
)
from tests.support.store_disks import mounted

CHANGES = ("os.link", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.chmod")


def counted_changes(act: Callable[[], object], at: int, do: Callable[[], object]) -> int:
    """In a child: `act`, with `do` before its change number `at` of the file system. How it ended,
    as `os.waitpid` says; exit code 3 is a refusal of ours."""
    child = os.fork()
    if child == 0:
        left = [at]

        def watch(event: str, args: tuple[object, ...]) -> None:
            flags = args[2] if event == "open" else 0
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
            if event in CHANGES or (event == "open" and writes):
                left[0] -= 1
                if left[0] == 0:
                    do()

        sys.addaudithook(watch)
        try:
            act()
        except NotWritable:
            os._exit(3)
        except BaseException:
            traceback.print_exc()
            os._exit(4)
        os._exit(0 if left[0] <= 0 else 5)
    return os.waitpid(child, 0)[1]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/full")


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder where syncing costs nothing."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="bundle-", dir=place) as folder:
        yield Path(folder)


def test_killed_at_every_change(there: Layout, path: Path, memory: Path) -> None:
    """It is as it was, or is going to be whole: the next one removes the rest or does it."""
    packed(there, path, (PIN,))
    few, whole = memory / "few.tar.gz", Layout(memory / "whole")
    packed(there, few, (), frozenset({"configs"}))
    taken(path, whole)
    expected, finished, undone = placed(whole), 0, 0
    for at in range(1, 400, 2):
        layout = Layout(memory / f"killed{at}")
        status = counted_changes(lambda layout=layout: taken(path, layout), at, die)
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 5 and at > 30  # no such change any more
            break
        there_now = placed(layout)
        assert all(expected.get(n) == d for n, d in there_now.items() if n in FILES), at
        if is_unfinished(layout):
            taken(few, layout, frozenset({"configs"}))  # the next one of any kind
            finished += 1
        else:
            undone += not there_now
            taken(path, layout)
        found = placed(layout)
        assert {n: found.get(n) for n in (*FILES, "cache/hash")} == {
            n: expected[n] for n in (*FILES, "cache/hash")
        }, at
        assert [s.state for s in PinStore(layout).status()] == ["active"], at
        assert not layout.arriving.exists()
        shutil.rmtree(layout.root)
    assert finished > 5 and undone > 5


def test_prune_and_doctor_know_what_a_kill_left(
    there: Layout, path: Path, memory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed(there, path, (PIN,))
    seen = set()
    for at in range(10, 400, 8):
        layout = Layout(memory / f"left{at}")
        counted_changes(lambda layout=layout: taken(path, layout), at, die)
        words = ["prune", "--older-than", "9", "--yes", "--cache-dir", str(layout.root)]
        if not layout.arriving.exists() or (whole := is_unfinished(layout)) in seen:
            continue
        seen.add(whole)
        with safe.locked(layout.root, layout.arriving):  # as one that is at work
            found = leftovers(layout, time.time(), 9)
        assert found == Leftovers(())
        checks = list(doctor.leftover_checks(layout))
        assert main(words) == 0
        told = capsys.readouterr()
        assert layout.arriving.exists() == whole
        if whole:
            assert "unbundle FILE --yes" in told.err and checks[0].verdict == "bad"
            taken(path, layout)
            assert {name: placed(layout)[name] for name in FILES} == FILES
        else:
            assert "Removed 1 thing" in told.out and "1 cut off" in checks[0].value
        if len(seen) == 2:
            break
    assert seen == {True, False}


def test_a_disk_that_is_full_on_the_way(there: Layout, path: Path, memory: Path) -> None:
    packed(there, path, (PIN,))
    refused = 0
    for at in range(1, 400, 5):
        layout = Layout(memory / f"full{at}")
        status = counted_changes(lambda layout=layout: taken(path, layout), at, fail)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, 3, 5), at
        if code == 5:
            break
        refused += code == 3
        if code == 3 and not is_unfinished(layout):
            assert placed(layout).keys() & FILES.keys() in (set(), FILES.keys()), at
        taken(path, layout)
        assert {n: placed(layout)[n] for n in FILES} == FILES
        shutil.rmtree(layout.root)
    assert refused > 5


def test_a_small_disk(there: Layout, path: Path, tmp_path: Path) -> None:
    """A real one: one line beforehand, and nothing is written."""
    (there.root / LIBRARY).write_bytes(os.urandom(3 << 20))
    packed(there, path)
    with mounted(tmp_path / "small") as folder:
        layout = Layout(folder / "cache")
        with pytest.raises(NotWritable, match=r"MiB free, and \d+ MiB are needed"):
            taken(path, layout)
        assert placed(layout) == {} and not layout.arriving.exists()
        with pytest.raises(NotWritable, match="the disk is full"):
            packed(there, folder / "warm.tar.gz")
        assert [entry.name for entry in folder.iterdir()] == ["cache"]
