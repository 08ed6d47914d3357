"""Pins that travel: what is written, what is checked, and what an import changes."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.cache.autotune import read_caches
from backend.disk.layout import Layout
from backend.errors import ShareInvalid
from backend.pins.store import PinStore
from backend.sharing.plan import ImportStep, steps_of
from backend.sharing.share import (
    PinExport,
    SharedPin,
    machine_here,
    parse_share,
    read_share,
    share_text,
)
from rocm_tui.cli.entry import main
from tests.support.hooked import BMM, launch_program
from tests.support.pin_lab import GPU

PIN = SharedPin(
    op="mm",
    inputs="[('cuda', 'torch.float16', 4, 8, 8, 1, 0)]",
    precision="highest",
    hash="triton_mm-c1",
    label="triton_mm_3",
    machine=GPU,
    config={"BLOCK_M": "64", "ACC_TYPE": "'tl.float32'"},
    timings={"highest": {"triton_mm-c1": 0.25, "mm-c2": math.inf}},
    device="cuda",
    who="jane@gpu7",
    when=1.7e9,
    note="steadier\nunder load",
)
OTHER = replace(PIN, op="bmm", machine=replace(GPU, compute_units=None), note="")
SHARE = PinExport((PIN, OTHER), "jane@gpu7", 1.7e9)


def test_what_is_written_can_be_read_back() -> None:
    text = share_text(SHARE)
    assert parse_share(text.encode(), "file") == SHARE
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert document["pins"][0]["timings"]["highest"] == {"triton_mm-c1": 0.25, "mm-c2": None}
    assert [pin["machine"] for pin in document["pins"]] == [0, 1]
    document["new"] = document["pins"][0]["new"] = {"of": "a later version"}
    assert parse_share(json.dumps(document).encode(), "file") == SHARE


Change = Callable[[dict[str, Any]], object]


def pin_with(**members: Any) -> Change:
    return lambda document: document["pins"][1].update(members)


def machine_with(**members: Any) -> Change:
    return lambda document: document["machines"][0].update(members)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: d.update(format="pins"), "`format` is not 'rocm-tui pins'"),
        (lambda d: d.update(version=2), "`version` is not 1; update rocm-tui"),
        (lambda d: d.update(version=True), "`version` is not a whole number"),
        (lambda d: d.update(pins={}), "`pins` is not a list"),
        (lambda d: d.update(pins=[[]]), "pin 1 is not a JSON object"),
        (lambda d: d.pop("when"), "`when` is not a number"),
        (lambda d: d.update(when=1e300), "`when` is not a number"),
        (lambda d: d.update(when=10**400), "`when` is not a number"),
        (pin_with(op=""), "pin 2: `op` is not a name"),
        (pin_with(op=None), "`op` is not text"),
        (pin_with(inputs="a\x1b]52;c;x\x07"), "`inputs` is not a name"),
        (pin_with(hash="x" * 70_000), "`hash` is too long"),
        (pin_with(note="\ud800"), "`note` holds half a character"),
        (pin_with(config={"BLOCK_M": 64}), "`config`, BLOCK_M is not text"),
        (pin_with(config=[]), "`config` is not an object"),
        (pin_with(timings={"high": {"a": -1}}), "`timings`, high has no time for a"),
        (pin_with(timings={"high": {"a": "1"}}), "`timings`, high has no time for a"),
        (pin_with(timings={"high": 1}), "`timings`, high is not an object"),
        (pin_with(machine=2), "`machine` is none of the 2"),
        (pin_with(machine=-1), "`machine` is not a whole number"),
        (pin_with(machine="0"), "`machine` is not a whole number"),
        (pin_with(when=-1), "`when` is not a number"),
        (machine_with(arch=["gfx942"]), "machine 1: `arch` is not text"),
        (machine_with(compute_units=1.5), "`compute_units` is not a whole number"),
        (machine_with(system_hash="\n"), "`system_hash` is not a name"),
    ],
)
def test_every_field_of_a_foreign_file_is_checked(change: Change, why: str) -> None:
    document = json.loads(share_text(SHARE))
    change(document)
    with pytest.raises(ShareInvalid) as caught:
        parse_share(json.dumps(document).encode(), "file")
    assert why in str(caught.value) and "\n" not in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"null", b"{" * 100_000, b"\xff", b'{"version": NaN}', b'{"a": Infinity}']
)
def test_what_is_no_such_file(data: bytes) -> None:
    with pytest.raises(ShareInvalid):
        parse_share(data, "file")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(json.loads(share_text(SHARE))["pins"][0])), JSON, st.booleans())
def test_any_value_anywhere_is_read_or_refused(name: str, value: object, top: bool) -> None:
    document = json.loads(share_text(SHARE))
    (document if top else document["pins"][0])[name] = value
    try:
        share = parse_share(json.dumps(document).encode(), "file")
    except ShareInvalid as error:
        assert str(error).isprintable()
    else:
        assert parse_share(share_text(share).encode(), "file") == share


# Real pins of this machine


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache dir with one recorded tuning, and its compiled graph."""
    root = tmp_path_factory.mktemp("tuned") / "inductor"
    launch_program(BMM, root)
    return root


@pytest.fixture(scope="module")
def share(tuned: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that another person's pin of it was exported to."""
    root = tmp_path_factory.mktemp("theirs") / "inductor"
    shutil.copytree(tuned, root)
    (file,) = read_caches(Layout(root))[0]
    ((key, times),) = file.entries.items()
    slow = max(times, key=times.__getitem__)
    PinStore(Layout(root)).pin(None, key, slow, "the slow one", "on purpose", "jane@gpu7")
    path = root.parent / "pins.json"
    assert main(["export", "-o", str(path), "--cache-dir", str(root)]) == 0
    return path


@pytest.fixture
def mine(tuned: Path, tmp_path: Path) -> Path:
    shutil.copytree(tuned, tmp_path / "inductor")
    return tmp_path / "inductor"


def edited(share: Path, path: Path, change: Change) -> Path:
    document = json.loads(share.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


def files(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.torch
def test_an_export_says_what_the_worker_says(share: Path) -> None:
    from backend.wire.jobs import EnvironmentJob
    from rocm_tui.environment import find_python
    from rocm_tui.jobs.worker import run_job

    environment = run_job(EnvironmentJob(), python=find_python(), cache_dir=share.parent)
    (pin,) = read_share(share).pins
    assert replace(pin.machine, host=None) == machine_here(asdict(environment))
    assert pin.machine.torch and pin.machine.arch and pin.machine.host
    assert (pin.label, pin.note, pin.who) == ("the slow one", "on purpose", "jane@gpu7")
    assert len(pin.timings["highest"]) == 2 and math.inf not in pin.timings["highest"].values()


@pytest.mark.torch
def test_an_import_is_a_dry_run_unless_yes(
    share: Path, mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(mine)
    assert main(["import", str(share), "--cache-dir", str(mine)]) == 0
    said = capsys.readouterr()
    assert "1 number raised out of reach, 1 compiled graph moves aside" in said.out
    assert said.err == "rocm-tui: nothing was changed; --yes does it\n"
    assert files(mine) == before

    assert main(["import", str(share), "--yes", "--json", "--cache-dir", str(mine)]) == 0
    done = json.loads(capsys.readouterr().out)
    assert done["applied"] and done["differences"] == []
    assert [(pin["action"], pin["numbers"], pin["graphs"]) for pin in done["pins"]] == [
        ("pin", 1, 1)
    ]
    store = PinStore(Layout(mine))
    (status,) = store.status()
    (pin,) = read_share(share).pins
    assert (status.state, status.pin.hash, status.pin.label) == ("active", pin.hash, pin.label)
    host = pin.machine.host
    assert status.pin.note.startswith(f"on purpose (imported from {host}, pinned 20")
    assert status.pin.note.endswith(" by jane@gpu7)")
    assert [entry.what for entry in store.history()] == ["pin"]

    # What `steps_of` says afterwards: the worker need not be asked again.
    here = replace(pin.machine, host=None)
    assert [step.action for step in steps_of([pin], here, store)] == ["same"]
    (step,) = steps_of([replace(pin, hash=other_hash(pin))], here, store)
    assert step.action == "replace" and "instead of the slow one, pinned by " in step.detail
    store.unpin(pin.key)
    assert all(files(mine)[path] == content for path, content in before.items())


def other_hash(pin: SharedPin) -> str:
    (other,) = set(pin.timings["highest"]) - {pin.hash}
    return other


@pytest.mark.torch
def test_a_choice_that_was_not_tuned_here_is_waited_for(share: Path, mine: Path) -> None:
    """Nothing of the cache dir is touched for it, and its state says so."""
    before = files(mine)
    store = PinStore(Layout(mine))
    (pin,) = read_share(share).pins
    here = replace(pin.machine, host=None)
    unknown = replace(pin, hash="triton_bmm-c1")
    elsewhere = replace(pin, inputs=pin.inputs.replace("4, 32, 64", "4, 48, 64"))
    steps = steps_of([unknown, elsewhere], here, store)
    assert [step.action for step in steps] == ["wait", "wait"] and elsewhere.inputs != pin.inputs
    for waiting in (unknown, elsewhere):
        report = store.pin(here.system_hash, waiting.key, waiting.hash, wait=True)
        assert (report.numbers, report.moved) == (0, 0)
        assert report.status is not None and report.status.state == "orphaned"
    assert [status.state for status in store.reconcile()] == ["orphaned"] * 2
    assert all(files(mine)[path] == content for path, content in before.items())

    # Now the tuning appears, as another process writes it: the pin takes hold.
    (path,) = [p for p in Layout(mine).autotune.iterdir() if not p.name.startswith(".")]
    document = json.loads(path.read_text())
    times = {waiting.hash: 2.0, other_hash(pin): 1.0}
    document["cache"]["bmm"][elsewhere.inputs] = {"highest": times}
    path.write_text(json.dumps(document, indent=4))
    store.reconcile()
    found = json.loads(path.read_text())["cache"]["bmm"][elsewhere.inputs]["highest"]
    assert found == {pin.hash: 2.0, other_hash(pin): 2.0**40}
    assert {status.pin.inputs: status.state for status in store.status()} == {
        unknown.inputs: "orphaned",
        elsewhere.inputs: "active",
    }


@pytest.mark.torch
def test_another_kind_of_machine_is_refused_and_nothing_changes(
    share: Path, mine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(mine)
    foreign = edited(share, tmp_path / "foreign.json", machine_with(arch="gfx942", torch="2.9.1"))
    assert main(["import", str(foreign), "--yes", "--cache-dir", str(mine)]) == 1
    said = capsys.readouterr()
    assert "refused" in said.out and "it comes from another kind of machine" in said.out
    arch, torch, nothing = said.err.splitlines()
    assert "refused: " in arch and "arch: gfx942 there, " in arch
    assert "warning: " in torch and "torch: 2.9.1 there, 2." in torch
    assert "nothing was changed" in nothing
    assert files(mine) == before


def test_a_failed_choice_and_two_pins_of_one_tuning(tmp_path: Path) -> None:
    layout = Layout(tmp_path / "inductor")
    layout.autotune.mkdir(parents=True)
    times = {"highest": {PIN.hash: math.inf, "mm-c2": 1.0, "mm-c3": 2.0}}
    document = {"system": {}, "cache": {PIN.op: {PIN.inputs: times}}}
    (layout.autotune / "cafe").write_text(json.dumps(document))
    store = PinStore(layout)
    (step,) = steps_of([PIN], GPU, store)
    assert step.action == "refused" and "failed when it was tuned" in step.detail
    newer = replace(PIN, hash="mm-c3", when=2e9, machine=replace(GPU, system_hash="beef"))
    own = replace(PIN, hash="mm-c2")

    def actions(*pins: SharedPin) -> list[str]:
        steps: list[ImportStep] = steps_of(pins, GPU, store)
        return [step.action for step in steps]

    assert actions(own, newer) == ["pin", "left out"]
    assert actions(newer, replace(newer, hash="mm-c2", when=1.0)) == ["pin", "left out"]


def test_words_that_are_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line each, no worker is started, nothing is written."""
    bad = tmp_path / "bad.json"
    bad.write_text('{"format": "rocm-tui pins", "version": 1}')
    (tmp_path / "good.json").write_text(share_text(SHARE))
    good, cache = str(tmp_path / "good.json"), ["--cache-dir", str(tmp_path / "cache")]
    for words, code, why in (
        (["import", str(bad)], 1, "`machines` is not a list"),
        (["import", str(tmp_path / "missing")], 1, "No such file"),
        (["import", good, "1234567"], 1, "is no id of the file; it has "),
        (["import", good, "--python", "/no/such/python"], 1, "no program that can be run"),
        (["export"], 1, "nothing is pinned"),
        (["export", "--json"], 2, "--json says what -o wrote"),
    ):
        assert main([*words, *cache]) == code
        said = capsys.readouterr()
        assert why in said.err and said.err.count("\n") == 1, (words, said)
        assert why in said.out if "--json" in words else not said.out, (words, said)
    assert not (tmp_path / "cache").exists()


@pytest.mark.torch
def test_an_export_goes_where_it_was_asked_to(
    share: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = ["--cache-dir", str(share.parent / "inductor")]
    assert main(["export", *root]) == 0
    assert parse_share(capsys.readouterr().out.encode(), "stdout").pins == read_share(share).pins
    (pin,) = read_share(share).pins
    target = tmp_path / "pins.json"
    target.write_text("old")
    (tmp_path / "link").symlink_to(target)
    assert main(["export", pin.id, "-o", str(tmp_path / "link"), *root]) == 0
    assert (tmp_path / "link").is_symlink() and read_share(target).pins == (pin,)
    assert main(["export", "fffffff", *root]) == 1
    if os.geteuid() == 0:  # in a folder that others write to, a link leads where they want
        os.chown(tmp_path / "link", 54321, -1, follow_symlinks=False)
        before = (tmp_path / "link").read_bytes()
        assert main(["export", "-o", str(tmp_path / "link"), *root]) == 2
        assert (tmp_path / "link").read_bytes() == before
    assert main(["export", "-o", str(tmp_path), *root]) == 2
    assert main(["export", "-o", str(tmp_path / "no" / "folder"), *root]) == 1
    assert main(["export", "--lookup-table", *root]) == 1
    said = capsys.readouterr()
    assert "the table is for GPUs only" in said.err and said.out.startswith("wrote 1 pin to ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "pins.json"]
