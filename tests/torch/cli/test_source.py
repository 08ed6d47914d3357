"""The sources of what stock PyTorch tuned on the CPU, and how they differ from ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.cache.code import code_hash, digest_in
from backend.disk.layout import Layout
from rocm_tui.actions.sources import pick_tuning
from rocm_tui.cli.entry import main
from rocm_tui.session.kernel_source import NoKernelSource, kernel_of, source_diff
from tests.support.torch_models import compiled

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The cache dir of a stock program: nothing of ours was there."""
    root = tmp_path_factory.mktemp("stock") / "cache"
    compiled(["bmm"], root)
    yield root


def tuned(cache: Path, capsys: pytest.CaptureFixture[str]) -> tuple[str, dict[str, str]]:
    """The id of its tuning, and hash by name or hash."""
    assert main(["ls", "--json", "--cache-dir", str(cache)]) == 0
    (row,) = json.loads(capsys.readouterr().out)["tunings"]
    return row["id"], {
        choice["hash"].partition("-")[0]: choice["hash"] for choice in row["choices"]
    }


def test_a_cpp_choice(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    id_, hashes = tuned(cache, capsys)
    (name,) = [name for name in hashes if name.startswith("Cpp")]
    assert main(["show", id_, hashes[name], "--source", "--cache-dir", str(cache)]) == 0
    source = capsys.readouterr().out
    assert "cpp_prefix.h" in source and 'extern "C"' in source
    assert code_hash(source.encode()) == digest_in(hashes[name])


def test_an_extern_choice(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    id_, hashes = tuned(cache, capsys)
    assert main(["show", id_, hashes["bmm"], "--source", "--cache-dir", str(cache)]) == 1
    assert "in no cache" in capsys.readouterr().err


def test_a_stage_that_is_not_there(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    id_, hashes = tuned(cache, capsys)
    (name,) = [name for name in hashes if name.startswith("Cpp")]
    assert main(["show", id_, hashes[name], "--stage", "ptx", "--cache-dir", str(cache)]) == 1
    assert "there is source" in capsys.readouterr().err


def test_a_source_that_was_removed(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    id_, _ = tuned(cache, capsys)
    _, row = pick_tuning(Layout(cache), [], id_)
    (choice,) = [choice for choice in row.tuning.choices if (choice.hash or "").startswith("Cpp")]
    found = kernel_of(row.tuning, choice, None, Layout(cache))
    assert found.source.path is not None and found.source.path.is_file()
    with pytest.raises(NoKernelSource, match="another cache dir"):
        kernel_of(row.tuning, choice, None, Layout(tmp_path))


def test_no_difference_from_a_library(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    id_, _ = tuned(cache, capsys)
    _, row = pick_tuning(Layout(cache), [], id_)
    first, second = row.tuning.choices[:2]
    with pytest.raises(NoKernelSource, match=r"bmm-.* is a kernel of ATen"):
        source_diff(row.tuning, first, second, None, Layout(cache))
