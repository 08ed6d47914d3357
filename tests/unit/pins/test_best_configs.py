"""A pin of a kernel that Inductor launches: what stands in its files, and what comes back."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from backend.cache.best_config import KernelFiles, kernel_source_of, read
from backend.cache.configs import described
from backend.disk.layout import Layout
from backend.errors import Busy, PinRefused, UnsafePath
from backend.model.choice import parse_config
from backend.model.inductor_kernel import comparable_config, parse
from backend.model.problem import TuningKey
from backend.pins.file import PinFile, PinRequest
from backend.pins.holders import PinHolders
from backend.pins.plan import Attribution, PinChange, pin_in_file
from backend.pins.store import PinStore
from backend.sharing.plan import steps_of
from backend.sharing.share import Machine, PinExport, parse_share, share_text
from rocm_tui.actions.share import pins_to_share
from rocm_tui.actions.tables import pin_row, row_at, solution_of
from tests.support import inductor_kernels as lab


def config(block: int, warps: int = 4) -> tuple[str, dict[str, str]]:
    """Hash and members, as a session tells them."""
    hash, _, text = described(comparable_config({"XBLOCK": block}, warps, 1))
    return hash, parse_config(text)


@pytest.fixture
def store(tmp_path: Path) -> PinStore:
    return PinStore(Layout(tmp_path))


def key_of(path: Path) -> TuningKey:
    kernel = kernel_source_of(path, read(path)).kernel
    return TuningKey(kernel.op, kernel.inputs, "")


def test_each_file_of_a_kernel_is_held_and_comes_back_byte_by_byte(store: PinStore) -> None:
    root = store.layout.root
    kernel = lab.put_source(root, lab.source())
    same = lab.put_source(root, lab.source("triton_poi_fused_add_7"))
    other = lab.put_source(root, lab.source(added=2.0))
    spaced = json.dumps(lab.best_config(), indent=1)
    files = [
        lab.put_config(kernel.parent, lab.best_config()),
        lab.put_config(same.parent, spaced),
        lab.put_config(other.parent, lab.best_config()),
    ]
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}
    key, (hash, members) = key_of(files[0]), config(512, 8)
    plan = store.plan(None, key, hash, members)
    assert plan.numbers == 2 and not plan.waits
    report = store.pin(None, key, hash, "XBLOCK=512 w8 s1", config=members)
    assert report.numbers == 2 and report.status
    assert report.status.state == "unproven" and "verify -- CMD" in report.status.detail
    for path in files[:2]:
        held = json.loads(path.read_bytes())
        assert held == json.loads(before[path][0]) | {"XBLOCK": 512, "num_warps": 8}
        assert path.stat().st_mtime_ns == before[path][1]
    assert files[2].read_bytes() == before[files[2]][0]
    assert [status.state for status in store.reconcile()] == ["unproven"]

    again, members = config(256, 2)
    store.pin(None, key, again, config=members)
    assert json.loads(files[0].read_bytes())["num_warps"] == 2
    store.unpin(key)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files} == before


def test_a_kernel_that_descends_is_told_that_it_need_not(store: PinStore) -> None:
    kernel = lab.put_source(store.layout.root, lab.source(descent=True))
    file = lab.put_config(kernel.parent, lab.best_config())
    hash, members = config(512)
    store.pin(None, key_of(file), hash, config=members)
    assert json.loads(file.read_bytes())["found_by_coordesc"] is True


def test_a_program_that_tunes_again_is_seen_and_counted(store: PinStore) -> None:
    kernel = lab.put_source(store.layout.root, lab.source())
    file = lab.put_config(kernel.parent, lab.best_config())
    key, (hash, members) = key_of(file), config(512)
    store.pin(None, key, hash, config=members)
    retuned = json.dumps(lab.best_config(128, time_taken_ms=7))
    file.write_text(retuned)
    assert [status.state for status in PinStore(store.layout).status()] == ["drifted"]
    (status,) = store.reconcile()
    assert status.pin.drifts == 1 and json.loads(file.read_bytes())["XBLOCK"] == 512
    (status,) = store.reconcile()
    assert status.state == "unproven" and "tuned over it (1 time)" in status.detail
    new = lab.put_config(kernel.parent, lab.best_config(64), "2" * 64)  # of another torch
    store.reconcile()
    assert json.loads(new.read_bytes())["XBLOCK"] == 512
    (pin,) = store.pins()
    assert pin.drifts == 1
    store.unpin(key)
    assert file.read_text() == retuned and json.loads(new.read_bytes())["XBLOCK"] == 64


def test_what_was_written_after_the_pin_is_left_alone(store: PinStore) -> None:
    kernel = lab.put_source(store.layout.root, lab.source())
    file = lab.put_config(kernel.parent, lab.best_config())
    key, (hash, members) = key_of(file), config(512)
    store.pin(None, key, hash, config=members)
    later = json.dumps(lab.best_config(128))
    file.write_text(later)
    store.unpin(key)
    assert file.read_text() == later


def test_without_a_file_it_holds_under_run_alone_and_says_so(store: PinStore) -> None:
    kernel = lab.put_source(store.layout.root, lab.source())
    file = lab.put_config(kernel.parent, lab.best_config())
    key, (hash, members) = key_of(file), config(512)
    file.unlink()
    report = store.pin(None, key, hash, config=members)
    assert report.status and report.status.state == "unproven"
    assert "rocm-tui run" in report.status.detail
    assert store.unpin(key).numbers == 0


def test_a_config_that_nobody_tells_cannot_be_pinned(store: PinStore) -> None:
    kernel = lab.put_source(store.layout.root, lab.source())
    file = lab.put_config(kernel.parent, lab.best_config())
    before = file.read_bytes()
    hash, _ = config(512)
    for members in ({}, config(256)[1], {"XBLOCK": "512"}):
        with pytest.raises(PinRefused, match="is unknown, or has values other"):
            store.pin(None, key_of(file), hash, config=members)
    assert file.read_bytes() == before and store.pins() == ()


def test_a_link_is_never_written_through(store: PinStore, tmp_path: Path) -> None:
    kernel = lab.put_source(store.layout.root, lab.source())
    away = tmp_path / "away"
    away.write_text(json.dumps(lab.best_config()))
    link = kernel.parent / f"{'1' * 64}.best_config"
    link.symlink_to(away)
    told = parse(lab.source())
    assert told is not None
    key, (hash, members) = TuningKey(told.op, told.inputs, ""), config(512)
    with pytest.raises(UnsafePath, match="it is a symlink"):
        store.pin(None, key, hash, config=members)
    assert store.pins() == ()
    assert json.loads(away.read_bytes())["XBLOCK"] == 256


def test_graphs_that_kept_the_kernel_are_moved_aside_and_come_back(store: PinStore) -> None:
    root = store.layout.root
    kernel = lab.put_source(root, lab.source())
    file = lab.put_config(kernel.parent, lab.best_config())
    graphs = {}
    for name, added in (("a", 1.0), ("b", 2.0)):
        path = root / "fxgraph" / "ab" / name / "content"
        path.parent.mkdir(parents=True)
        text = lab.source("triton_poi_fused_add_3", added)
        path.write_text(
            f"\x80call = async_compile.triton('k', '''\n{text}''', device_str='cuda')\n"
        )
        os.utime(path, (time.time() - 100,) * 2)
        graphs[name] = path
    key, (hash, members) = key_of(file), config(512)
    report = store.pin(None, key, hash, config=members)
    assert report.moved == 1 and not graphs["a"].exists() and graphs["b"].exists()
    graphs["a"].parent.mkdir(exist_ok=True)
    graphs["a"].with_name("made with the pin").write_bytes(
        graphs["b"].read_bytes().replace(b"2.0", b"1.0")
    )
    (status,) = store.reconcile()
    assert status.state == "unproven"
    report = store.unpin(key)
    assert (report.moved, report.restored) == (1, 1) and graphs["a"].exists()


@pytest.mark.parametrize(("digest", "other"), [("1" * 64, False), ("2" * 64, True)])
def test_an_import_tells_that_the_list_of_configs_is_another(
    tmp_path: Path, digest: str, other: bool
) -> None:
    """Stock PyTorch before 2.13 looks it up in its own list, and tunes again where it is not."""
    roots = {name: Layout(tmp_path / name) for name in ("there", "here")}
    files = []
    for layout, said in zip(roots.values(), ("1" * 64, digest), strict=True):
        kernel = lab.put_source(layout.root, lab.source())
        files.append(lab.put_config(kernel.parent, lab.best_config(configs_hash=said)))
    hash, members = config(512)
    PinStore(roots["there"]).pin(None, key_of(files[0]), hash, config=members)
    (pin,) = pins_to_share(roots["there"], [], [str(roots["there"].root)], None)
    assert pin.lists == ("1" * 64,)
    text = share_text(PinExport((pin,), "me@there", 1.0)).encode()
    (step,) = steps_of(parse_share(text, "file").pins, Machine(), PinStore(roots["here"]))
    assert step.action == "pin" and ("another list of configs" in step.detail) is other
    old = text.replace(b'"lists"', b'"not_known"')  # as it was exported before
    (step,) = steps_of(parse_share(old, "file").pins, Machine(), PinStore(roots["here"]))
    assert step.action == "pin" and "another list" not in step.detail


CODE = "1) or __import__('os').system('true') or (1"


def with_value(value: object, name: str = "XBLOCK") -> tuple[str, dict[str, str]]:
    hash = described(comparable_config({name: value}, 4, 1))[0]
    return hash, {name: str(value), "num_warps": "4", "num_stages": "1"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("XBLOCK", CODE),
        ("XBLOCK", "exit"),
        ("XBLOCK", "breakpoint()"),
        ("XBLOCK", "tf32;x"),
        ("XBLOCK", ""),
        ("lambda", 1),
        ("X BLOCK", 1),
        ("__class__", 1),
    ],
)
def test_code_in_a_config_is_never_pinned(store: PinStore, name: str, value: object) -> None:
    kernel = lab.put_source(store.layout.root, lab.source())
    file = lab.put_config(kernel.parent, lab.best_config())
    before = file.read_bytes()
    hash, members = with_value(value, name)
    with pytest.raises(PinRefused, match="numbers and Triton's words"):
        store.pin(None, key_of(file), hash, config=members)
    assert file.read_bytes() == before and store.pins() == ()


@pytest.mark.parametrize("value", [True, 64, None, "tf32", "torch.bfloat16", "fp8e4nv", ".cg"])
def test_numbers_and_words_of_triton_are_pinned(store: PinStore, value: object) -> None:
    kernel = lab.put_source(store.layout.root, lab.source())
    file = lab.put_config(kernel.parent, lab.best_config(kpack=value))
    key = key_of(file)
    hash = described(comparable_config({"XBLOCK": 512, "kpack": value}, 4, 1))[0]
    members = {
        "XBLOCK": "512",
        "kpack": json.dumps(value) if value is None or value is True else str(value),
    }
    store.pin(None, key, hash, config={**members, "num_warps": "4", "num_stages": "1"})
    assert json.loads(file.read_bytes())["kpack"] == value
    assert json.loads(file.read_bytes())["XBLOCK"] == 512


def test_a_file_with_code_in_it_is_no_place_for_a_pin(store: PinStore) -> None:
    """The members beside the pinned ones would stay in the file, and come back with `unpin`."""
    kernel = lab.put_source(store.layout.root, lab.source())
    file = lab.put_config(kernel.parent, lab.best_config(kpack=CODE))
    before, (hash, members) = file.read_bytes(), config(512)
    with pytest.raises(PinRefused, match="which PyTorch would execute as source"):
        store.pin(None, key_of(file), hash, config=members)
    assert file.read_bytes() == before and store.pins() == ()


def test_unpin_puts_no_code_back(store: PinStore) -> None:
    kernel = lab.put_source(store.layout.root, lab.source())
    file = lab.put_config(kernel.parent, lab.best_config())
    key, (hash, members) = key_of(file), config(512)
    store.pin(None, key, hash, config=members)
    pins = json.loads(store.layout.pins.read_bytes())
    text = json.dumps(pins).replace('\\"XBLOCK\\": 256', f'\\"XBLOCK\\": \\"{CODE}\\"')
    assert CODE in text
    store.layout.pins.write_text(text)
    held = file.read_bytes()
    PinStore(store.layout).unpin(key)
    assert file.read_bytes() == held


def test_what_is_changed_and_restored_is_counted(store: PinStore) -> None:
    kernel = lab.put_source(store.layout.root, lab.source())
    files = [lab.put_config(kernel.parent, lab.best_config(), str(n) * 64) for n in range(2)]
    key, (hash, members) = key_of(files[0]), config(512)
    plan = store.plan(None, key, hash, members)
    assert (plan.numbers, plan.waits, plan.precisions) == (2, False, ())
    assert store.pin(None, key, hash, config=members).numbers == 2
    assert store.plan(None, key, hash, members).numbers == 0
    files[0].write_text(json.dumps(lab.best_config(128)))
    assert store.unpin(key).numbers == 1
    files[1].write_bytes(b"\xff")
    assert [path for path, _ in KernelFiles(store.layout.root).of(key.op, key.inputs)] == files[:1]


def test_a_pin_that_is_refused_at_one_file_changes_no_other(store: PinStore) -> None:
    root = store.layout.root
    names = ("triton_poi_fused_add_3", "triton_poi_fused_add_7")
    files = sorted(
        lab.put_config(lab.put_source(root, lab.source(name)).parent, lab.best_config())
        for name in names
    )
    before, key = [path.read_bytes() for path in files], key_of(files[0])
    assert files[0].parent != files[1].parent and key_of(files[1]) == key
    files[1].parent.chmod(0o777)
    hash, members = config(512)
    with pytest.raises(UnsafePath, match="every user can write there"):
        store.pin(None, key, hash, config=members)
    assert [path.read_bytes() for path in files] == before and store.pins() == ()
    files[1].parent.chmod(0o700)
    store.reconcile()
    assert [path.read_bytes() for path in files] == before


@pytest.mark.parametrize("pinned", [False, True])
def test_a_pin_that_fails_with_another_gives_the_original_back(
    store: PinStore, tmp_path: Path, pinned: bool
) -> None:
    """The other is a row of a table that a program has open."""
    kernel = lab.put_source(store.layout.root, lab.source())
    file = lab.put_config(kernel.parent, lab.best_config())
    before, key = file.read_bytes(), key_of(file)
    table = tmp_path / "tunableop_results0.csv"
    table.write_text("Validator,PT_VERSION,2.6.0\nGemmTunableOp_float_NT,nt_8_8_8,Default,0.01\n")
    row = row_at(f"{table}:2")
    rocblas = solution_of(row, "Gemm_Rocblas_2")
    if pinned:
        hash, members = config(128)
        store.pin(None, key, hash, config=members)
    held = file.read_bytes()
    pin_row(row, rocblas, store.layout)
    row_pin = store.pins()[-1]
    store.unpin(row_pin.key)
    hash, members = config(512)
    requests = [
        PinRequest(None, key, hash, config=members),
        PinRequest(None, row_pin.key, rocblas.label, config=rocblas.values, table=table),
    ]

    def make(pins: PinFile, holders: PinHolders) -> list[PinChange]:
        return [pin_in_file(pins, holders, each, Attribution("me")) for each in requests]

    with table.open("a"), pytest.raises(Busy, match="is open in"):
        store.change(make)
    assert file.read_bytes() == held and len(store.pins()) == int(pinned)
    assert [status.pin.drifts for status in store.reconcile()] == [0] * pinned
    assert file.read_bytes() == held
    store.unpin_all()
    assert file.read_bytes() == before
