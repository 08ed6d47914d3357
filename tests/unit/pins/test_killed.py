"""Pins of Triton kernels that are killed with their files half written: nothing of ours stays."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from backend.cache import best_config, configs
from backend.cache.configs import described
from backend.disk import exchange
from backend.disk.layout import Layout
from backend.model.choice import parse_config
from backend.model.inductor_kernel import TRITON, comparable_config
from backend.model.problem import TuningKey
from backend.pins.store import PinStore
from rocm_tui.actions.tables import pin_row, row_at, solution_of
from rocm_tui.cli import main
from tests.support import inductor_kernels as lab

Act = Callable[[], object]
Acts = dict[str, Act]
CHANGES = ("open", "os.rename", "os.remove", "os.mkdir", "os.chmod", "os.utime")


def _changes(event: str, arguments: tuple[object, ...]) -> bool:
    flags = arguments[2] if event == "open" else os.O_RDWR
    return event in CHANGES and isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR))


def killed(act: Act, at: int) -> bool:
    """`act` in a child that is killed before its change number `at` of the file system; False if
    it makes no so many."""
    child = os.fork()
    if child == 0:
        left = [at]

        def changes() -> None:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        stock = exchange.exchange

        def exchanging(first: Path, second: Path) -> bool:
            changes()
            done = stock(first, second)
            changes()
            return done

        exchange.exchange = exchanging
        sys.addaudithook(lambda event, arguments: _changes(event, arguments) and changes())
        try:
            act()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def best_configs(top: Path) -> tuple[Path, Acts]:
    root = top / "cache_dir"
    kernel = lab.put_source(root, lab.source())
    same = lab.put_source(root, lab.source("triton_poi_fused_add_7"))
    path = lab.put_config(kernel.parent, lab.best_config())
    lab.put_config(same.parent, json.dumps(lab.best_config(), indent=1))
    found = best_config.kernel_source_of(path, best_config.read(path)).kernel
    key = TuningKey(found.op, found.inputs, "")
    layout = Layout(root)

    def pin(block: int) -> None:
        hash, _, text = described(comparable_config({"XBLOCK": block}, 8, 1))
        PinStore(layout).pin(None, key, hash, config=parse_config(text))

    acts: Acts = {"pin": partial(pin, 512), "repin": partial(pin, 128)}
    return root, {**acts, "unpin": lambda: PinStore(layout).unpin(key)}


def autotuned(top: Path) -> tuple[Path, Acts]:
    root, path = top / "cache_dir", top / "triton" / ("A" * 52) / "k.autotune.json"
    root.mkdir(parents=True)
    path.parent.mkdir(parents=True)
    timings = [
        [{"kwargs": {"BLOCK": n}, "num_warps": 1, "num_ctas": 1, "num_stages": 3}, [ms] * 3]
        for n, ms in ((32, 1.0), (64, 0.5))
    ]
    path.write_text(json.dumps({"key": [1024, "torch.float16"], "configs_timings": timings}))
    tuned = configs.read(path)
    key = TuningKey(TRITON, tuned.inputs, "")
    first, second = sorted(config.hash for config in tuned.configs)
    layout, digest = Layout(root), path.parent.name
    return root, {
        "pin": lambda: PinStore(layout).pin(digest, key, first),
        "repin": lambda: PinStore(layout).pin(digest, key, second),
        "unpin": lambda: PinStore(layout).unpin(key),
    }


def tuned_table(top: Path) -> tuple[Path, Acts]:
    root, path = top / "cache_dir", top / "tunableop_results0.csv"
    root.mkdir(parents=True)
    path.write_text(
        "Validator,PT_VERSION,2.6.0\nGemmTunableOp_float_NT,nt_64_64_64,Gemm_Rocblas_1,0.01\n"
    )
    layout = Layout(root)

    def pin(solution: str) -> None:
        row = row_at(f"{path}:2")
        pin_row(row, solution_of(row, solution), layout)

    acts: Acts = {
        "pin": partial(pin, "Gemm_Rocblas_2"),
        "repin": partial(pin, "Gemm_Rocblas_3"),
        "unpin": lambda: PinStore(layout).unpin_all(),
    }
    return root, acts


def _files(top: Path, root: Path) -> dict[str, tuple[bytes, int]]:
    """All files but ours. The time of Inductor's and Triton's says when a kernel was tuned."""
    return {
        str(path.relative_to(top)): (
            path.read_bytes(),
            0 if path.suffix == ".csv" else path.stat().st_mtime_ns,
        )
        for path in top.rglob("*")
        if path.is_file() and root / "rocm_tui" not in path.parents
    }


@pytest.mark.parametrize("act", ["pin", "repin", "unpin"])
@pytest.mark.parametrize("make", [best_configs, autotuned, tuned_table])
def test_after_a_kill_unpinning_gives_back_each_byte_and_leaves_no_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[..., tuple[Path, Acts]],
    act: str,
) -> None:
    for at in range(1, 200):
        top = tmp_path / str(at)
        monkeypatch.setenv("TRITON_CACHE_DIR", str(top / "triton"))
        root, acts = make(top)
        before = _files(top, root)
        if act != "pin":
            acts["pin"]()
        if not killed(acts[act], at):
            assert at > 20
            return
        store = PinStore(Layout(root))
        if at % 2:
            store.reconcile()
            if act == "repin" and make is not autotuned:
                assert [pin.drifts for pin in store.pins()] == [0], at
        store.unpin_all()
        assert _files(top, root) == before, at
    raise AssertionError("it ended never")


def test_unpin_again_finishes_an_unpin_that_was_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = TuningKey("mm", "[('cpu', 'torch.float32', 8, 8, 8, 1, 0)]", "highest")
    document = {"cache": {key.op: {key.inputs: {key.precision: {"fast": 1.0, "slow": 2.0}}}}}
    unfinished = 0
    for at in range(1, 60):
        root = tmp_path / str(at)
        layout, path = Layout(root), Layout(root).autotune / ("a" * 64)
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(document))
        before = path.read_bytes()
        store = PinStore(layout)
        pin = store.pin("a" * 64, key, "slow").pin
        where = ["--cache-dir", str(root)]
        if not killed(partial(store.unpin, key), at):
            break
        if store.unfinished():
            unfinished += 1
            main(["pin", *where])
            told = capsys.readouterr().err
            assert "the unpin of slow was interrupted" in told
            assert f"`rocm-tui unpin {pin.id} --cache-dir {root}` finishes it" in told
        if path.read_bytes() != before or store.unfinished():
            assert main(["unpin", pin.id, *where]) == 0
        assert path.read_bytes() == before and not store.unfinished()
    assert unfinished > 2
