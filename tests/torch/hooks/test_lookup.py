"""Our lookup and PyTorch's own: the same answers, the same file, and many processes at once."""

from __future__ import annotations

import json
import math
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from backend.disk import exchange
from tests.support.torch_models import child_env
from tests.support.tuning_callers import CALLERS, go, run, start
from tests.support.warm_python import warm_python

HINTS = (None, None, 64, 4096)


class Choice:
    def __init__(self, name: str) -> None:
        self._name = name

    def hash_key(self) -> str:
        return self._name


@pytest.fixture
def callers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], tuple[Any, Path]]]:
    """ "stock" or "ours", and its cache file."""
    from torch._inductor.codecache import PersistentCache

    from backend.inductor.hooks import lookup

    monkeypatch.setattr(lookup, "_current", None)

    def make(kind: str) -> tuple[Any, Path]:
        base = PersistentCache if kind == "stock" else lookup.TunedLookup
        path = tmp_path / kind / "cache" / "s"
        made = type(kind, (base,), {"get_local_cache_path": staticmethod(lambda: path)})()
        return made, path

    yield make


def test_as_stock(callers: Callable[[str], tuple[Any, Path]]) -> None:
    """Hundreds of lookups, with choices that come and go, fail, hints and precisions: the same
    timings, the same benchmarks, and at last the same file byte by byte."""
    import torch

    stock, stock_path = callers("stock")
    ours, our_path = callers("ours")
    rng = random.Random(3)
    all_choices = [Choice(f"c{i}") for i in range(6)]
    before = torch.get_float32_matmul_precision()
    hits = 0
    try:
        for _ in range(400):
            torch.set_float32_matmul_precision(rng.choice(("highest", "high")))
            offered = rng.sample(all_choices, rng.randint(1, 5))
            op, inputs = rng.choice(("mm", "bmm")), rng.choice(("[a]", "[b]", "[c]"))
            hint, may_tune = rng.choice(HINTS), rng.random() < 0.5
            measured = {c: rng.choice((rng.random(), math.inf)) for c in offered}
            calls: list[list[Choice]] = []

            def benchmark(
                choices: list[Choice],
                calls: list[list[Choice]] = calls,
                measured: dict[Choice, float] = measured,
            ) -> dict[Choice, float]:
                calls.append(choices)
                return dict(measured)

            found = [
                caller.lookup(offered, op, inputs, benchmark if may_tune else None, hint)
                for caller in (stock, ours)
            ]
            assert list(found[0].items()) == list(found[1].items())
            assert len(calls) in (0, 2)
            hits += not calls and len(found[0]) == len(offered)
    finally:
        torch.set_float32_matmul_precision(before)
    assert 50 < hits < 390
    assert our_path.read_bytes() == stock_path.read_bytes()


def test_a_switched_off_cache_is_not_read(
    callers: Callable[[str], tuple[Any, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import config

    ours, path = callers("ours")
    choice = Choice("c")
    ours.lookup([choice], "mm", "[a]", lambda _: {choice: 1.0})
    monkeypatch.setattr(config, "autotune_local_cache", False)
    assert ours.lookup([choice], "mm", "[a]", None) == {}
    assert ours.lookup([choice], "mm", "[b]", lambda _: {choice: 2.0}) == {choice: 2.0}
    assert json.loads(path.read_bytes())["cache"]["mm"].keys() == {"[a]", "[b]"}


def test_where_we_do_not_write_stock_does(
    callers: Callable[[str], tuple[Any, Path]],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    ours, path = callers("ours")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path.parent.mkdir(parents=True)
    (path.parents[1] / "rocm_tui").symlink_to(elsewhere)
    choice = Choice("c")
    for inputs in ("[a]", "[b]"):
        ours.lookup([choice], "mm", inputs, lambda _: {choice: 1.0})
        assert ours.lookup([choice], "mm", inputs, None) == {choice: 1.0}
    assert json.loads(path.read_bytes())["cache"]["mm"].keys() == {"[a]", "[b]"}
    assert not list(elsewhere.iterdir())
    said = capfd.readouterr().err
    assert said.count("is a symlink") == 1 and said.count("\n") == 1


SIXTEEN = """
import os
caller("ours")  # imports all; each child has a cache of its own
gate, opened = os.pipe()
children = []
for i in range(16):
    pid = os.fork()
    if pid == 0:
        os.close(opened)
        os.read(gate, 1)
        cache, offered = caller("ours"), choices(20)
        for n in range(10):
            tune(cache, f"op{i}", f"[{n}]", offered)
            tune(cache, "shared", f"[{n}]", choices(2, f"{i}-"))
        os._exit(0)
    children.append(pid)
os.close(opened)
assert all(os.waitpid(pid, 0)[1] == 0 for pid in children)
"""


@pytest.mark.torch
def test_sixteen_processes_at_once(tmp_path: Path) -> None:
    """Each tunes keys of its own, and choices of its own in keys that all share."""
    assert run(tmp_path, SIXTEEN) == ""
    # What one left in its journal while another held the lock is merged by the next.
    run(tmp_path, "tune(caller('ours'), 'mm', '[last]', choices(3))")
    kept = entries(tmp_path)
    assert {(f"op{i}", f"[{n}]") for i in range(16) for n in range(10)} <= kept
    # Stock PyTorch takes all of it from the file.
    program = (
        "for i in range(16):\n for n in range(10):\n"
        "  assert len(caller('stock').lookup(choices(20), f'op{i}', f'[{n}]', None)) == 20\n"
        "  offered = choices(2, f'{i}-')\n"
        "  assert len(caller('stock').lookup(offered, 'shared', f'[{n}]', None)) == 2\n"
        "print('all')"
    )
    assert run(tmp_path, program).endswith("all\n")


BESIDE = """
import pathlib
from backend.disk import exchange
real, log = exchange.exchange, pathlib.Path(sys.argv[1])
def watched(prepared, path):
    # What it displaces must be what the new content was made from, or come back.
    done = real(prepared, path)
    with log.open("ab") as stream:
        stream.write(prepared.read_bytes().replace(b"\\n", b" ") + b"\\n")
    return done
exchange.exchange = watched
cache, offered = caller("ours"), choices(20)
for i in range(30):
    tune(cache, "mm", f"[{i}]", offered, 0.01)
"""


@pytest.mark.torch
def test_beside_stock_writers(tmp_path: Path) -> None:
    """What of theirs was in the file when we displaced it is in it after us."""
    log = tmp_path / "displaced"
    root = tmp_path / "root"
    stock = start(root, "stock", "theirs", 60, 0.01)
    go(stock)
    ours = subprocess.run(
        [*warm_python(), "-c", CALLERS + BESIDE, str(log)],
        env=child_env(root),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ours.returncode == 0 and ours.stderr == "", ours.stderr
    _, err = stock.communicate(timeout=200)
    assert stock.returncode == 0, err
    # One more insert of ours: whatever is still displaced or in a journal is merged.
    run(root, "tune(caller('ours'), 'mm', '[last]', choices(3))")
    kept = entries(root)
    displaced = [json.loads(line) for line in log.read_bytes().splitlines()]
    assert len(displaced) >= 30
    last = displaced[-1]["cache"]
    assert {("theirs", key) for key in last.get("theirs", {})} <= kept
    assert ("mm", "[last]") in kept
    assert not exchange.leftover_path(next((root / "cache").glob("[!.]*"))).exists()


@pytest.mark.torch
def test_killed_processes_lose_nothing_reported(tmp_path: Path) -> None:
    children = [start(tmp_path, "ours", f"op{i}", 10_000) for i in range(3)]
    for child in children:
        go(child)
    reported = set()
    for i, child in enumerate(children):
        assert child.stdout is not None
        seen = [child.stdout.readline() for _ in range(5 + 3 * i)]
        child.kill()
        seen += child.stdout.readlines()
        child.wait()
        reported |= {(f"op{i}", f"[{line.strip()}]") for line in seen if line.endswith("\n")}
    assert len(reported) >= 24
    run(tmp_path, "caller('ours').lookup(choices(20), 'op0', '[0]', None)")
    assert reported <= entries(tmp_path)


def entries(root: Path) -> set[tuple[str, str]]:
    found = json.loads(next((root / "cache").glob("[!.]*")).read_bytes())["cache"]
    return {(op, inputs) for op, by_inputs in found.items() for inputs in by_inputs}


def test_only_the_blameless_failures_of_a_problem_stay_unwritten(
    callers: Callable[[str], tuple[Any, Path]],
) -> None:
    """What was not a kernel's fault is tried again; its other times and failures are kept."""
    from backend.inductor.hooks import lookup

    ours, path = callers("ours")
    good, failed, blameless, mended = choices = [Choice(name) for name in "abcd"]
    for choice in (blameless, mended):
        lookup.note_blameless_failure(choice)
    times = {good: 1.0, failed: math.inf, blameless: math.inf, mended: 2.0}
    with lookup.looking_up("problem") as measured:

        def benchmark(_: list[Choice]) -> dict[Choice, float]:
            measured(times)
            return times

        ours.lookup(choices, "mm", "[a]", benchmark)
    (written,) = json.loads(path.read_bytes())["cache"]["mm"]["[a]"].values()
    assert written == {"a": 1.0, "b": math.inf, "d": 2.0}
    assert lookup.failed_blamelessly("problem") == {"c"}
