"""Graphs that name files of the cache dir that they were compiled in."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.sharing.bundle.moved import other_root
from rocm_tui.cli.entry import main
from tests.support.bundle_lab import GRAPH, packed

NAME = f"c{'a2' * 25}b"


def entry(root: object, protocol: int = 5) -> bytes:
    """As PyTorch pickles it: the class by its name, the kernel's code by its whole path."""
    kernel = {"kind": "StaticallyLaunchedAutotuner", "filename": f"{root}/a2/{NAME}.py"}
    return pickle.dumps([b"\x80\x00", kernel, "as told"], protocol)


@pytest.mark.parametrize("protocol", range(3, 6))
def test_a_root_of_any_length_is_told_from_another(tmp_path: Path, protocol: int) -> None:
    """Before a path stands the length of the text, which may look like a letter."""
    for length in range(1, 260):
        root = Path("/" + ("r" * length)[:200] + "/" + "s" * max(length - 200, 1))
        data = entry(root, protocol)
        assert other_root(data, root) is None
        assert other_root(data, Path("/other")) == str(root)
        assert other_root(entry(f"/srv{root}", protocol), root) == f"/srv{root}"


def test_a_link_to_the_root_is_the_root(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert other_root(entry(tmp_path.resolve()), tmp_path / "link") is None
    assert other_root(entry(tmp_path / "link"), tmp_path) == str(tmp_path / "link")


def test_other_graphs_may_lie_anywhere(tmp_path: Path) -> None:
    data = entry("/far").replace(b"StaticallyLaunched", b"DynamicallyLaunched")
    assert other_root(data, tmp_path) is None
    assert other_root(b"StaticallyLaunchedAutotuner", tmp_path) is None
    odd = b"StaticallyLaunchedAutotuner\xff/aa/" + NAME.encode() + b".py"
    assert other_root(odd, tmp_path) == "."


def test_what_such_a_graph_does_at_another_path_is_said(
    there: Layout, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (there.root / GRAPH).write_bytes(entry(there.root))
    digest = packed(there, path).sha256
    words = ["unbundle", str(path), "--json", "--with", "graphs", "--sha256", digest, "--cache-dir"]
    main([*words, str(tmp_path / "here")])
    said = capsys.readouterr()
    assert f"warning: 1 graph of this bundle will look in {there.root} for the best" in said.err
    assert json.loads(said.out)["moved"] == {GRAPH: str(there.root)}
    main([*words, str(there.root)])
    said = capsys.readouterr()
    assert "will look in" not in said.err and json.loads(said.out)["moved"] == {}
