"""The proof: stock PyTorch starts warm on a cache dir that came in a bundle, at another path."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout
from backend.pins.store import PinStore
from backend.sharing.bundle import archive
from backend.sharing.bundle.arrive import take
from backend.sharing.bundle.examine import examine
from backend.sharing.share import Machine
from rocm_tui.cli.entry import main
from tests.support.bundle_lab import tree
from tests.support.places import ROOT
from tests.support.torch_models import told_by
from tests.support.warm_python import warm_python

pytestmark = pytest.mark.torch

PROGRAM = ROOT / "tests" / "support" / "bundle_program.py"


def started(cache: Path) -> dict[str, int]:
    return told_by(PROGRAM, cache)


class Warm(NamedTuple):
    """A bundle of a cache dir that is gone; what packing it said; the pinned choice."""

    path: Path
    told: dict[str, Any]
    hash: str
    first: dict[str, int]


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Warm:
    """Stock PyTorch tuned, the loser was pinned, and the program compiled anew with it."""
    folder = tmp_path_factory.mktemp("warm")
    layout = Layout(folder / "a")
    first = started(layout.root)
    (file,) = read_caches(layout)[0]
    ((key, times),) = file.entries.items()
    loser = max(times, key=times.__getitem__)
    PinStore(layout).pin(None, key, loser)
    assert started(layout.root)["misses"] > 0
    path = folder / "warm.tar.gz"
    with pytest.MonkeyPatch.context() as patch:
        lines: list[Any] = []
        patch.setattr("rocm_tui.say.out_json", lines.append)
        assert main(["bundle", "-o", str(path), "--cache-dir", str(layout.root), "--json"]) == 0
    shutil.rmtree(layout.root)
    return Warm(path, lines[0], loser, first)


def unbundle(warm: Warm, cache: Path, *words: str) -> int:
    return main(["unbundle", str(warm.path), "--cache-dir", str(cache), *words])


def test_what_is_packed_is_told(warm: Warm) -> None:
    told = warm.told
    assert {row["part"] for row in told["parts"]} == {"pins", "timings", "graphs", "code"}
    assert told["box"]["machine"]["torch"] and len(told["box"]["torch_key"]) == 64
    assert len(told["sha256"]) == 64 and len(told["pins"]) == 1
    assert warm.first["benchmarks"] >= 2 and warm.first["built"] >= 2


def test_a_cold_program_is_warm_in_another_place(
    warm: Warm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is timed, nothing is built, the graph is found, and it calls the pinned choice."""
    cache = tmp_path / "another" / "place"
    assert unbundle(warm, cache, "--yes") == 1  # a program needs the digest of its file
    out, err = capsys.readouterr()
    assert tree(cache) == {} and "refused" not in out and warm.told["sha256"] in out
    assert "nothing was changed" in err and "programs, which run as you" in err
    assert unbundle(warm, cache, "--yes", "--sha256", warm.told["sha256"]) == 0
    assert started(cache) == {
        "benchmarks": 0, "hits": 1, "misses": 0, "companions": 1, "built": 0
    }  # fmt: skip
    (status,) = PinStore(Layout(cache)).status()
    assert (status.state, status.pin.hash) == ("active", warm.hash)
    capsys.readouterr()
    words = ["verify", "--cache-dir", str(cache), "--", *warm_python(), str(PROGRAM)]
    assert main(words) == 0 and "called: " in capsys.readouterr().out


def test_without_graphs_it_compiles_and_times_nothing(warm: Warm, tmp_path: Path) -> None:
    """Timings and pins are no programs: they need no digest."""
    assert unbundle(warm, tmp_path / "b", "--yes", "--with", "timings,pins") == 0
    told = started(tmp_path / "b")
    assert (told["benchmarks"], told["hits"], told["misses"] > 0) == (0, 0, True)
    assert [s.state for s in PinStore(Layout(tmp_path / "b")).status()] == ["active"]
    assert not (tmp_path / "b" / "rocm_tui" / "arriving").exists()


def edited(warm: Warm, path: Path, **box: Any) -> Path:
    """The bundle as another box would have made it."""
    with gzip.open(warm.path) as stream:
        data = stream.read()
    size = int(data[124:135], 8)
    document = json.loads(data[512 : 512 + size])
    for name, value in box.items():
        (document["box"] if name in document["box"] else document["box"]["machine"])[name] = value
    text = json.dumps(document).encode()
    head = archive.header("manifest.json", len(text)) + text + archive.padding(len(text))
    rest = data[512 + size + len(archive.padding(size)) :]
    path.write_bytes(gzip.compress(head + rest, mtime=0))
    return path


def test_graphs_of_another_build_of_torch_are_refused(
    warm: Warm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, cache = edited(warm, tmp_path / "edited.tar.gz", torch_key="0" * 64), tmp_path / "b"
    words = ["unbundle", str(path), "--cache-dir", str(cache)]
    assert main([*words, "--yes", "--json", "--with", "timings,graphs,code"]) == 1
    told = json.loads(capsys.readouterr().out)
    refused = {row["part"]: row["refused"] for row in told["parts"] if row["refused"]}
    assert refused.keys() == {"graphs", "code"} and "another build of torch" in refused["graphs"]
    assert not told["applied"] and tree(cache) == {}


def test_a_graph_that_would_hide_a_pin_is_left_out(warm: Warm, tmp_path: Path) -> None:
    """Here another choice is pinned, and the bundle's pins are not asked for."""
    layout, here = Layout(tmp_path / "b"), Machine()
    few = frozenset({"timings"})
    take(warm.path, examine(warm.path, layout, here, few, None), layout, here, few, None)
    (file,) = read_caches(layout)[0]
    ((key, times),) = file.entries.items()
    (winner,) = times.keys() - {warm.hash}
    PinStore(layout).pin(None, key, winner)
    rest = frozenset({"graphs", "code"})
    found = examine(warm.path, layout, here, rest, None)
    assert [(hidden.verdict, hidden.surely) for hidden in found.hidden] == [("other", True)]
    assert take(warm.path, found, layout, here, rest, None).files > 0
    assert not list(layout.fxgraph.glob("*/*/*"))
    assert [status.state for status in PinStore(layout).status()] == ["active"]
