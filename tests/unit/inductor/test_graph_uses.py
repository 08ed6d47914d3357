"""The file that tells later processes which tunings a compiled graph contains."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.errors import CacheUnreadable, UnsafePath
from backend.inductor.hooks import graphs
from backend.model.graph import TuningUse
from backend.wire.codec import WireError


def test_a_file_of_tunings_that_is_no_such_file_says_nothing_and_stays(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    use = TuningUse("mm", "[]", "highest", 3, "mm-x")
    path = graphs.uses_path(layout, "abcdef0")
    for content in (b"", b"[]", b'{"keys": 7}', b'{"keys": {"k": [{"op": 1}]}}', b"\xff" * 99):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        assert graphs.kept_uses(layout, "abcdef0", "k") == ()
        with pytest.raises((CacheUnreadable, WireError)):
            graphs.keep_uses(layout, "abcdef0", "k", [use])
        assert path.read_bytes() == content
    path.unlink()
    graphs.keep_uses(layout, "abcdef0", "k", [use])
    assert graphs.kept_uses(layout, "abcdef0", "k") == (use,)
    for number in range(graphs.MAX_KEYS + 5):
        graphs.keep_uses(layout, "abcdef0", f"k{number}", [use])
    assert graphs.kept_uses(layout, "abcdef0", "k4") == ()
    assert graphs.kept_uses(layout, "abcdef0", "k5") == (use,)


def test_a_symlink_in_its_place_is_refused_and_stays(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    path = graphs.uses_path(layout, "abcdef0")
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "other")
    with pytest.raises(UnsafePath, match="it is a symlink"):
        graphs.keep_uses(layout, "abcdef0", "k", [TuningUse("mm", "[]", "highest", 3, "mm-x")])
    assert path.is_symlink() and not (tmp_path / "other").exists()
