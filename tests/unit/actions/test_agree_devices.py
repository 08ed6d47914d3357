"""Ranks on several devices of a box: the hash of a Triton choice is another one on each of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice
from backend.model.events import ChoiceSelected, ChoiceTimed, SessionEnded, TuningStarted
from backend.model.session import Session
from backend.pins.file import read_pin_file
from backend.pins.store import PinStore
from backend.sharing.share import Machine, PinExport, SharedPin, share_text
from backend.wire.jobs import MeasureJob, WorkerJob
from rocm_tui.actions.agree import find_selections, measure_chosen, plan_pins
from rocm_tui.actions.sources import load_model, read_part
from rocm_tui.cli.entry import main
from rocm_tui.jobs.limits import JobError
from rocm_tui.json_output import builtins_of
from rocm_tui.render import agree as agree_text
from rocm_tui.report.agreement import Agreement, agreement, propose
from rocm_tui.report.job import report
from tests.support.device_modules import compiled_on, write_choice

R = TypeVar("R")
RANKS = range(4)
NOW = 1.79e9
SYSTEM = "cd" * 32
ATEN = "mm-" + "c" * 52
BLOCKS = (64, 128)
SMALL, LARGE, EXTERN = 0, 1, 2
"""The kernels that each rank is offered."""

Took = Mapping[str, Sequence[int | None]]
"""The kernel that each rank takes, by the sizes of the problem; None where it tuned nothing."""
JOB: Took = {
    "8": (SMALL, SMALL, SMALL, SMALL),
    "16": (LARGE, LARGE, LARGE, SMALL),
    "32": (None, None, LARGE, None),
    "64": (EXTERN, EXTERN, EXTERN, EXTERN),
    "128": (LARGE, None, None, LARGE),
}
"""Of five problems four are compared, one differs, and one is rank 2's alone."""


def inputs(size: str) -> str:
    return f"[('cuda', 'torch.float16', {size}, 8, 8, 1, 0)]"


def kernels(root: Path, device: int) -> list[str]:
    """The hashes of SMALL, LARGE and EXTERN on a device."""
    return [*(write_choice(root, device, BLOCK_M=block) for block in BLOCKS), ATEN]


def choices(hashes: Sequence[str], rank: int, described: bool) -> tuple[Choice, ...]:
    """As a session has them: each rank numbers its own."""
    made = [
        Choice(f"triton_mm_{2 * at + rank}", hash_, description=f"BLOCK_M={block}")
        for at, (hash_, block) in enumerate(zip(hashes, BLOCKS, strict=False))
    ]
    if not described:
        made = [Choice(choice.name, choice.hash) for choice in made]
    return (*made, Choice("mm", ATEN))


def ran(root: Path, rank: int, took: Took, *, described: bool = False) -> None:
    """The log of a rank on the device of its number."""
    session = Session(
        f"box-{rank}", host="box", pid=100 + rank, rank=rank, argv=("train.py",), torch="2.13",
        started=NOW, system_hash=SYSTEM,
    )  # fmt: skip
    hashes = kernels(root, rank)
    writer = EventWriter(Layout(root), session)
    for n, (size, by_rank) in enumerate(took.items(), start=1):
        kernel = by_rank[rank]
        if kernel is None:
            continue
        writer.write(
            TuningStarted(
                n,
                NOW + n,
                op="mm",
                inputs=inputs(size),
                precision="highest",
                shapes=((int(size), 8),),
                strides=((8, 1),),
                dtypes=("torch.float16",),
                device="cuda",
                choices=choices(hashes, rank, described),
            )
        )
        for at, hash_ in enumerate(hashes):
            writer.write(ChoiceTimed(n, hash_, 1.0 + 0.5 * (at != kernel)))
        writer.write(ChoiceSelected(n, NOW + n, hashes[kernel], "timing", 0.1, 0.1))
    writer.write(SessionEnded(NOW + 9))
    writer.close()


def cached(root: Path, took: Took, devices: Iterable[int] = RANKS) -> Layout:
    """The cache file that stock PyTorch writes on these devices."""
    layout = Layout(root)
    layout.autotune.mkdir(parents=True, exist_ok=True)
    entries: dict[str, dict[str, dict[str, float]]] = {}
    for device in devices:
        hashes = kernels(root, device)
        for size, by_rank in took.items():
            kernel = by_rank[device]
            if kernel is not None:
                times = {name: 1.0 + 0.5 * (at != kernel) for at, name in enumerate(hashes)}
                entries.setdefault(inputs(size), {}).setdefault("highest", {}).update(times)
    document = {"system": {}, "cache": {"mm": entries}}
    (layout.autotune / SYSTEM).write_text(json.dumps(document, indent=4))
    compiled_on(root, *devices)
    return layout


def without_modules(root: Path) -> None:
    for path in root.rglob("c*.py"):
        path.unlink()


def agreed(layout: Layout, *paths: Path) -> Agreement:
    told = find_selections(layout, list(map(str, paths)))
    return agreement(told.choosers, told.all)


def check_job(found: Agreement) -> None:
    """That all is counted right."""
    assert (found.problems, found.compared, found.not_compared, found.alone) == (5, 4, 1, 1)
    assert (found.apart, found.untold, found.missing) == (0, 0, ())
    (one,) = found.differing
    assert one.row.tuning.shapes == ((16, 8),)
    assert [[each.by.rank for each in group.selections] for group in one.groups] == [[0, 1, 2], [3]]
    assert one.unoffered == ()
    assert one.ratio == pytest.approx(1.5) and one.standing == "apart"
    both = {(agree_text.who(p.a), agree_text.who(p.b)): (p.both, p.same) for p in found.pairs}
    assert both == {
        ("rank 0", "rank 3"): (4, 3),
        ("ranks 1-2", "rank 3"): (3, 2),
    }
    line = agree_text.footer(found)[1]
    assert line == "3 of 4 problems agree; 1 differs. 1 of 5 problems was not compared."


def test_a_box_with_one_cache_dir(tmp_path: Path) -> None:
    layout = cached(tmp_path, JOB)
    for rank in RANKS:
        ran(tmp_path, rank, JOB)
    check_job(agreed(layout))


def test_the_logs_alone_in_the_cache_dir(tmp_path: Path) -> None:
    for rank in RANKS:
        ran(tmp_path, rank, JOB)
    compiled_on(tmp_path, *RANKS)
    check_job(agreed(Layout(tmp_path)))


def test_each_rank_with_a_cache_dir_of_its_own(tmp_path: Path) -> None:
    roots = [tmp_path / f"rank{rank}" for rank in RANKS]
    for rank, root in enumerate(roots):
        cached(root, JOB, [rank])
        ran(root, rank, JOB)
    check_job(agreed(Layout(tmp_path / "none"), *roots))


def test_logs_without_modules_are_compared_by_configuration(tmp_path: Path) -> None:
    for rank in RANKS:
        ran(tmp_path, rank, JOB, described=True)
    without_modules(tmp_path)
    check_job(agreed(Layout(tmp_path)))
    check_report(tmp_path)


def test_stock_caches_of_several_devices_are_compared(tmp_path: Path) -> None:
    """Without a session: a row for each device, a pin included."""
    layout = cached(tmp_path, JOB)
    found = agreed(layout, tmp_path)
    assert (found.problems, found.compared, found.not_compared) == (5, 4, 1)
    (one,) = found.differing
    names = [[each.by.name.rpartition(" ")[2] for each in group.selections] for group in one.groups]
    assert names == [["cuda:0", "cuda:1", "cuda:2"], ["cuda:3"]]
    key = one.row.tuning.key
    assert key is not None
    PinStore(layout).pin(None, key, kernels(tmp_path, 3)[SMALL])
    assert agreed(layout, tmp_path).differing == ()


def check_report(root: Path) -> None:
    """That `compare` says what `agree` says."""
    part, _ = read_part(Layout(root), str(root), ())
    found = report(part)
    (job,) = found.jobs
    assert (job.compared, job.not_compared) == (4, 1)
    (one,) = job.differing
    assert {each.by.name: each.choice.name for each in one.selections} == {
        "rank 0 box": "triton_mm_2",
        "rank 1 box": "triton_mm_3",
        "rank 2 box": "triton_mm_4",
        "rank 3 box": "triton_mm_3",
    }


def test_compare_and_agree_count_the_same(tmp_path: Path) -> None:
    cached(tmp_path, JOB)
    for rank in RANKS:
        ran(tmp_path, rank, JOB)
    check_report(tmp_path)


def test_each_ranks_own_name_is_printed(tmp_path: Path) -> None:
    """`triton_mm_3` is one kernel on rank 1 and another one on rank 3."""
    cached(tmp_path, JOB)
    for rank in RANKS:
        ran(tmp_path, rank, JOB)
    found = agreed(Layout(tmp_path))
    small, large = (name.rpartition("-") for name in kernels(tmp_path, 0)[:2])
    lines = agree_text.text(found).split("\n")
    ms = "~1.000 ms"
    assert [line.strip() for line in lines if "rank" in line] == [
        f"rank 0: triton_mm_2 {ms}",
        f"rank 1: triton_mm_3 (triton_mm-{large[2][:8]}) {ms}, the same kernel",
        f"rank 2: triton_mm_4 {ms}, the same kernel",
        f"rank 3: triton_mm_3 (triton_mm-{small[2][:8]}) {ms}",
    ]
    group = builtins_of(agree_text.AgreementJson.of(found))["problems"][0]["groups"][0]
    assert [each["choice"] for each in group["taken"]] == [f"triton_mm_{n}" for n in (2, 3, 4)]
    hashes = [kernels(tmp_path, rank)[LARGE] for rank in range(3)]
    assert [each["hash"] for each in group["taken"]] == hashes
    assert group["identity"] == hashes[0]


def test_one_pin_for_all_devices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = cached(tmp_path, JOB)
    for rank in RANKS:
        ran(tmp_path, rank, JOB)
    before = (layout.autotune / SYSTEM).read_bytes()
    (differing,) = agreed(layout).differing
    proposal = propose(differing)
    assert proposal.choice is not None and proposal.choice.hash == kernels(tmp_path, 0)[LARGE]
    assert proposal.by == "timings" and proposal.unoffered == ()
    words = ["agree", "--cache-dir", str(tmp_path), "--pin", "--yes"]
    assert main(words) == 0
    (pin,) = read_pin_file(layout.pins).pins
    assert pin.hashes >= {kernels(tmp_path, rank)[LARGE] for rank in RANKS}
    cache = json.loads((layout.autotune / SYSTEM).read_text())["cache"]
    times = cache[pin.op][pin.inputs][pin.precision]
    for rank in RANKS:
        offered = kernels(tmp_path, rank)
        assert min(offered, key=times.__getitem__) == offered[LARGE]
    assert main(words) == 0 and len(read_pin_file(layout.pins).pins) == 1  # it is held already
    assert main(["undo", "--cache-dir", str(tmp_path)]) == 0
    assert (layout.autotune / SYSTEM).read_bytes() == before
    capsys.readouterr()


def test_an_export_of_another_device_is_compared(tmp_path: Path) -> None:
    """The pin was made on device 2 there; here there is device 0 alone."""
    job: Took = {"8": (SMALL, None, None, None)}
    layout = cached(tmp_path / "here", job, [0])
    hashes = {device: kernels(tmp_path / "there", device) for device in RANKS}
    variants = {str(device): names[LARGE] for device, names in hashes.items()}
    times = {name: 1.0 for names in hashes.values() for name in names}
    pin = SharedPin(
        "mm", inputs("8"), "highest", variants["2"], "triton_mm_9", Machine(system_hash=SYSTEM),
        timings={"highest": times}, variants=variants,
    )  # fmt: skip
    file = tmp_path / "pins.json"
    file.write_text(share_text(PinExport((pin,))))
    (one,) = agreed(layout, file, layout.root).differing
    assert [choice.hash for choice, _ in one.unoffered] == []
    PinStore(layout).pin(None, pin.key, hashes[0][LARGE])
    found = agreed(layout, file, layout.root)
    assert found.agree and found.compared == 1


def test_a_pin_by_the_hash_of_another_device_holds_already(tmp_path: Path) -> None:
    layout = cached(tmp_path, JOB)
    for rank in RANKS:
        ran(tmp_path, rank, JOB)
    (differing,) = agreed(layout).differing
    key = differing.row.tuning.key
    assert key is not None
    for kernel, held in ((SMALL, False), (LARGE, True)):
        PinStore(layout).pin(None, key, kernels(tmp_path, 2)[kernel])
        (step,) = plan_pins([propose(differing)], load_model(layout), layout)
        assert step.held is held


def test_a_pin_goes_to_a_cache_dir_of_another_device(tmp_path: Path) -> None:
    """Ranks 0 and 3 have cache dirs of their own; what is proposed is pinned in that of rank 3."""
    roots = {rank: tmp_path / f"rank{rank}" for rank in (0, 3)}
    for rank, root in roots.items():
        cached(root, JOB, [rank])
        ran(root, rank, JOB)
    (differing,) = agreed(Layout(roots[3]), *roots.values()).differing
    proposal = propose(differing)
    assert proposal.choice is not None and proposal.choice.hash == kernels(roots[0], 0)[LARGE]
    layout = Layout(roots[3])
    (step,) = plan_pins([proposal], load_model(layout), layout)
    assert step.wanted is not None and step.wanted.hash == kernels(roots[3], 3)[LARGE]


def test_what_differs_is_measured_on_one_device(tmp_path: Path) -> None:
    """On that of a rank that was offered all of the choices, by their hashes there."""
    cached(tmp_path, JOB)
    for rank in RANKS:
        ran(tmp_path, rank, JOB)
    (differing,) = agreed(Layout(tmp_path)).differing
    first = differing.groups[0].selections[0]
    only = replace(first.tuning, choices=(first.choice,))
    unmeasurable = replace(differing.groups[0].selections[0].tuning, inputs_key=None)
    logged = replace(first, row=replace(first.row, tuning=unmeasurable))  # offered all of them
    taken = (
        logged,
        replace(first, row=replace(first.row, tuning=only)),
        *differing.groups[0].selections[1:],
    )
    groups = (replace(differing.groups[0], selections=taken), *differing.groups[1:])
    jobs: list[MeasureJob] = []

    def run(job: WorkerJob[R]) -> R:
        assert isinstance(job, MeasureJob)
        jobs.append(job)
        raise JobError("no worker")

    (measured,) = measure_chosen([replace(differing, groups=groups)], run)
    assert measured.reason == "no worker"
    large, small = kernels(tmp_path, 1)[LARGE], kernels(tmp_path, 1)[SMALL]
    assert set(jobs[0].hashes) == {large, small}
