"""Where each file of a cache dir is, and which names may be part of its path."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from backend.disk.layout import Layout, cache_dir, is_file_name
from backend.errors import UnsafePath


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("autotune", "cache"),
        ("fxgraph", "fxgraph"),
        ("aotautograd", "aotautograd"),
        ("home", "rocm_tui"),
        ("pins", "rocm_tui/pins.json"),
        ("done", "rocm_tui/done.jsonl"),
        ("sessions", "rocm_tui/sessions"),
        ("evicted", "rocm_tui/evicted"),
        ("ranks", "rocm_tui/ranks"),
        ("triton", "rocm_tui/triton"),
        ("graphs", "rocm_tui/graphs"),
        ("trials", "rocm_tui/graphs/cache"),
    ],
)
def test_files_stay_where_other_versions_look_for_them(name: str, path: str) -> None:
    assert getattr(Layout(Path("/c")), name) == Path("/c") / path


@pytest.mark.parametrize(
    ("name", "fits"),
    [
        ("a", True),
        ("a b.c", True),
        ("x" * 200, True),
        ("x" * 201, False),
        ("é" * 100, True),
        ("é" * 101, False),
        ("", False),
        (".hidden", False),
        ("a/b", False),
        ("a\n", False),
    ],
)
def test_which_names_may_be_part_of_a_path(name: str, fits: bool) -> None:
    assert is_file_name(name) is fits
    if fits:
        assert Layout(Path("/c")).cache_file(name) == Path("/c/cache") / name
    else:
        with pytest.raises(UnsafePath, match="no cache file is called"):
            Layout(Path("/c")).cache_file(name)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"TORCHINDUCTOR_CACHE_DIR": "/a/b/../c", "TMPDIR": "{}"}, "/a/c"),
        ({"TMPDIR": "{}", "USER": "ann"}, "{}/torchinductor_ann"),
        ({"TEMP": "{}", "USER": "ann", "LOGNAME": "bob"}, "{}/torchinductor_bob"),
        ({"TMP": "{}", "LOGNAME": "", "LNAME": "cid"}, "{}/torchinductor_cid"),
        ({"TMPDIR": "{}/none", "TEMP": "{}/file", "TMP": "{}", "USERNAME": 'a:b/c"'},
         "{}/torchinductor_a_b_c_"),
        ({"TMPDIR": "{}/none", "USER": "ann"}, "/tmp/torchinductor_ann"),
    ],
)  # fmt: skip
def test_the_cache_dir_of_an_environment(
    tmp_path: Path, env: dict[str, str], expected: str
) -> None:
    (tmp_path / "file").write_text("")
    env = {name: text.format(tmp_path) for name, text in env.items()}
    assert str(cache_dir(env)) == expected.format(tmp_path)


def test_the_user_is_the_systems_where_no_variable_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {"TMPDIR": str(tmp_path)}
    assert cache_dir(env).name == f"torchinductor_{pwd.getpwuid(os.getuid()).pw_name}"
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    assert cache_dir(env).name == "torchinductor_uid_54321"
