"""The one rule for folders: what others can write is not run, whatever they exchange meanwhile."""

from __future__ import annotations

import grp
import os
import py_compile
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from backend.disk import trusted
from backend.errors import CacheError, LoadError, UnsafePath
from backend.templates.triton import module_file
from backend.toolchain import code_cache
from backend.toolchain.target import cpu
from tests.support.descriptors import open_descriptors
from tests.support.odd_files import put_odd
from tests.support.toolchain_kernels import available

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs another user's files")


def made(root: Path) -> Path:
    path = root / "rocm_tui" / "code" / "ab" / "file"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"ours")
    return path


def test_what_is_ours_is_read(tmp_path: Path) -> None:
    root = tmp_path / "root"
    path = made(root)
    assert trusted.read_file(root, path) == b"ours"
    (tmp_path / "link").symlink_to(root)  # above the cache dir a link harms nobody
    assert trusted.read_file(tmp_path / "link", tmp_path / "link" / path.relative_to(root))


def test_no_folder_on_the_way_stays_open(tmp_path: Path) -> None:
    path = made(tmp_path)
    before = open_descriptors()
    for _ in range(3):
        trusted.read_file(tmp_path, path)
        with pytest.raises(OSError, match="No such file"):
            trusted.read_file(tmp_path, path.with_name("none"))
    assert open_descriptors() == before


def test_missing_folders_are_made_for_us_alone(tmp_path: Path) -> None:
    root = tmp_path / "not" / "there"
    folder = root / "rocm_tui" / "code"
    with pytest.raises(OSError, match="No such file"), trusted.opened_folder(root, folder):
        pass
    for _ in range(2):
        with trusted.opened_folder(root, folder, make=True) as descriptor:
            assert os.path.samestat(os.fstat(descriptor), folder.stat())
    assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent)] == [0o700] * 2


@pytest.mark.skipif(
    grp.getgrgid(os.getegid()).gr_name != trusted.user_name(os.geteuid()),
    reason="the user has no group of their own",
)
def test_the_users_own_group_is_nobody_else(tmp_path: Path) -> None:
    path = made(tmp_path / "root")
    for each in (path, *path.parents[:4]):
        each.chmod(0o770)
    assert trusted.read_file(tmp_path / "root", path) == b"ours"
    assert trusted.why_not_written(path.parent.stat()) == ""


@pytest.mark.parametrize("at", range(5))
@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777])
def test_a_folder_that_others_can_write(tmp_path: Path, at: int, mode: int) -> None:
    root = tmp_path / "root"
    path = made(root)
    place = [root, *reversed(path.parents[:3]), path][at]
    place.chmod(mode)
    if mode & 0o1000 and place not in (path, path.parent):
        assert trusted.read_file(root, path) == b"ours"  # nobody can take away what is ours
        return
    with pytest.raises(UnsafePath, match=f"nothing is loaded from {place}: .*write"):
        trusted.read_file(root, path)


@as_root
@pytest.mark.parametrize("at", range(5))
def test_a_folder_of_somebody_else(tmp_path: Path, at: int) -> None:
    root = tmp_path / "root"
    path = made(root)
    os.chown([root, *reversed(path.parents[:3]), path][at], 54321, 54321)
    with pytest.raises(UnsafePath, match="belongs to user 54321"):
        trusted.read_file(root, path)


@as_root
def test_a_group_without_a_name_is_somebody_else(tmp_path: Path) -> None:
    path = made(tmp_path / "root")
    os.chown(path.parent, -1, 54321)
    path.parent.chmod(0o770)
    with pytest.raises(UnsafePath, match="the group 54321 can write there; chmod g-w it"):
        trusted.read_file(tmp_path / "root", path)


@pytest.mark.parametrize("at", range(1, 5))
def test_a_link_on_the_way(tmp_path: Path, at: int) -> None:
    root = tmp_path / "root"
    path = made(root)
    place = [root, *reversed(path.parents[:3]), path][at]
    place.rename(tmp_path / "real")
    place.symlink_to(tmp_path / "real")
    with pytest.raises(UnsafePath, match=f"{place}.* is a symlink"):
        trusted.read_file(root, path)


@pytest.mark.parametrize("kind", ["fifo", "folder", "zero", "loop", "link", "missing link"])
def test_odd_things_in_its_place(tmp_path: Path, kind: str) -> None:
    path = made(tmp_path)
    path.unlink()
    put_odd(path, kind)
    with pytest.raises((UnsafePath, OSError)):
        trusted.read_file(tmp_path, path)


LIBRARY = "int entry(void) { return %d; }"


def library(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".c")
    source.write_text(LIBRARY % value)
    subprocess.run(["cc", "-shared", "-o", str(path), str(source)], check=True)


@pytest.mark.skipif(not available(cpu()), reason="no compiler")
def test_exchanging_a_folder_wins_nothing(tmp_path: Path) -> None:
    """Another user renames what lies in a root that everybody can write, again and again."""
    ours, theirs = tmp_path / "root" / "rocm_tui", tmp_path / "root" / "theirs"
    library(ours / "kernel.so", 1)
    library(theirs / "kernel.so", 2)
    (tmp_path / "root").chmod(0o777)
    if os.geteuid() == 0:
        os.chown(theirs, 54321, 54321)
    stop = threading.Event()

    def exchange() -> None:
        aside = tmp_path / "root" / "aside"
        while not stop.is_set():
            ours.rename(aside)
            theirs.rename(ours)
            ours.rename(theirs)
            aside.rename(ours)

    thread = threading.Thread(target=exchange)
    thread.start()
    try:
        for _ in range(300):
            with pytest.raises(LoadError):
                code_cache.load(ours / "kernel.so", tmp_path / "root")
    finally:
        stop.set()
        thread.join()
    with pytest.raises(CacheError, match="every user can write there"):
        code_cache.compile("", cpu(), cache_root=tmp_path / "root")


@pytest.mark.skipif(not available(cpu()), reason="no compiler")
def test_libraries_of_one_name_are_two(tmp_path: Path) -> None:
    for value in (1, 2, 3):
        library(tmp_path / str(value) / "kernel.so", value)
    for value in (1, 2, 3):
        assert code_cache.load(tmp_path / str(value) / "kernel.so").entry("entry")() == value


PLANTED = "open({mark!r}, 'w').close()"


def test_planted_code_beside_a_module_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python takes the bytecode in `__pycache__` if the time and the size in it are the source's;
    of an unchecked one it does not even look at them."""
    monkeypatch.setattr(module_file, "triton", lambda name: sys)
    mark = tmp_path / "planted"
    source = "def launch():\n    return 7\n"
    path = module_file.write_source("kernel", source, tmp_path / "triton")
    evil = tmp_path / "evil.py"
    evil.write_text(PLANTED.format(mark=str(mark)))
    from importlib.util import cache_from_source

    cached = Path(cache_from_source(str(path)))
    cached.parent.mkdir()
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(evil), cfile=str(cached), invalidation_mode=mode)
    path.write_text(PLANTED.format(mark=str(mark)))  # nor is what somebody wrote over the source
    module = module_file.load_module(path, source)
    assert module.launch() == 7 and not mark.exists()
    import inspect

    assert inspect.getsource(module.launch) == source
    assert list(cached.parent.iterdir()) == [cached]


def test_no_module_is_written_where_others_can(tmp_path: Path) -> None:
    folder = tmp_path / "triton"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(UnsafePath):
        module_file.write_source("kernel", "x = 1\n", folder)
    assert not list(folder.iterdir())
