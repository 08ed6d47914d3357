"""A pin of a kernel that Inductor launches is what stock Inductor launches: its own tuner and its
own files, with Triton's compiler, on a driver of no GPU."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from backend.cache.best_config import kernel_source_of, read
from backend.cache.configs import described
from backend.disk.layout import Layout
from backend.model.choice import parse_config
from backend.model.inductor_kernel import comparable_config
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from rocm_tui.cli.entry import main
from tests.support import inductor_kernels as lab
from tests.support.triton_lab import ROOT


def pinned(store: PinStore, file: Path, block: int) -> TuningKey:
    kernel = kernel_source_of(file, read(file)).kernel
    key = TuningKey(kernel.op, kernel.inputs, "")
    hash, name, text = described(comparable_config({"XBLOCK": block}, 4, 1))
    store.pin(None, key, hash, name, config=parse_config(text))
    return key


def test_stock_inductor_takes_it_from_the_file_and_through_a_kept_graph(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    kernel, graph = lab.put_source(tmp_path, lab.source()), tmp_path / "graph"
    first = lab.run(tmp_path, kernel, graph)
    assert sorted(first["timed"]) == ["XBLOCK=128 w4", "XBLOCK=256 w4"]
    assert first["launched"] == ["XBLOCK=128 w4"]
    (file,) = lab.files(tmp_path)
    before = file.read_bytes()
    tried = "".join(f"[('XBLOCK', {block})] 4 1\n" for block in (256, 128))
    assert read(file).configs_hash == hashlib.sha256(tried.encode()).hexdigest()

    store = PinStore(Layout(tmp_path))
    key = pinned(store, file, 256)
    assert lab.run(tmp_path, kernel) == {"timed": [], "launched": ["XBLOCK=256 w4"]}
    assert [status.state for status in store.status()] == ["unproven"]
    for name, value in lab.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(ROOT)
    assert main(["verify", "--", *lab.argv(kernel, graph)]) == 0
    assert "called: XBLOCK=256 w4 s1, which Inductor launched" in capfd.readouterr().out
    assert [status.state for status in store.status()] == ["active"]
    store.unpin(key)
    assert file.read_bytes() == before
    assert lab.run(tmp_path, kernel, graph) == {"timed": [], "launched": ["XBLOCK=128 w4"]}


def test_coordinate_descent_does_not_go_on_from_a_pin(tmp_path: Path) -> None:
    """Without `found_by_coordesc` it would, as 2.11 was seen to do from an edited file."""
    kernel = lab.put_source(tmp_path, lab.source(descent=True))
    stem = first_name(tmp_path, kernel)
    file = lab.put_config(kernel.parent, lab.best_config(128), stem)
    pinned(PinStore(Layout(tmp_path)), file, 512)
    assert lab.run(tmp_path, kernel) == {"timed": [], "launched": ["XBLOCK=512 w4"]}
    assert json.loads(file.read_bytes())["XBLOCK"] == 512


def first_name(root: Path, kernel: Path) -> str:
    """What this torch calls the file."""
    pytest.importorskip("torch")
    from torch._inductor.runtime.autotune_cache import AutotuneCache

    key = AutotuneCache._prepare_key(str(kernel))
    return Path(AutotuneCache._make_local_cache_key(str(kernel.parent), key)).stem
