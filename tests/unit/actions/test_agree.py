"""Who took what, as files tell it: sessions of ranks, caches with pins, exports, logs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from backend.cache.autotune import preferred
from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.errors import Busy, PinRefused, ShareInvalid
from backend.model.choice import Choice, Measurement
from backend.model.events import (
    ChoiceSelected,
    ChoiceTimed,
    GraphCompiled,
    SessionEnded,
    TuningStarted,
)
from backend.model.graph import Graph, TuningUse
from backend.model.session import Session
from backend.model.tuning import Selection
from backend.pins.store import PinStore
from backend.pins.undo import next_undo, undo
from backend.sharing.share import Machine, PinExport, SharedPin, share_text
from rocm_tui.actions.agree import find_selections, pin_all, plan_pins, with_measured
from rocm_tui.actions.sources import load_model
from rocm_tui.cli.entry import main
from rocm_tui.errors import NoSuchSource, NotPinnable
from rocm_tui.render import agree as agree_text
from rocm_tui.report.agreement import Agreement, agreement, propose
from tests.support.log_lab import MM
from tests.support.pin_lab import KEY, TIMES
from tests.support.store_disks import make_stale

PINNED, FAST = "Cpp-c2", "mm-c1"
NOW = 1.79e9
SYSTEM = "ab" * 32
TIMED = {FAST: 1.5, PINNED: 2.25}


def cache_file(layout: Layout) -> Path:
    return layout.autotune / SYSTEM


def make_layout(root: Path, cache: object = None) -> Layout:
    """A cache dir with one cache file."""
    layout = Layout(root)
    layout.autotune.mkdir(parents=True)
    told = cache or {KEY.op: {KEY.inputs: {KEY.precision: TIMES}}}
    cache_file(layout).write_text(json.dumps({"system": {}, "cache": told}, indent=4))
    return layout


def ran(
    root: Path,
    number: int | None,
    took: str,
    *,
    timed: Mapping[str, float] | None = None,
    by: Selection | None = "timing",
    started: float = NOW,
    argv: tuple[str, ...] = ("train.py",),
    host: str = "box",
    system: str = SYSTEM,
) -> str:
    """The log of a rank that took a choice of the cache that `make_layout` makes; `by` nothing: it
    found a compiled graph that calls it."""
    at = 0 if number is None else number
    session = Session(
        f"{host}-{int(started)}-{at}", host=host, pid=100 + at, rank=number, argv=argv,
        torch="2.13", started=started, system_hash=system,
    )  # fmt: skip
    writer = EventWriter(Layout(root), session)
    choices = tuple(Choice(name.partition("-")[0], name) for name in (FAST, PINNED))
    start = (KEY.op, KEY.inputs, KEY.precision, ((4, 8),), ((8, 1),), ("torch.float32",), "cpu")
    if by is None:
        use = TuningUse(KEY.op, KEY.inputs, KEY.precision, 1, took)
        writer.write(GraphCompiled(1, started + 2, Graph("1dabc8d", tunings=(use,))))
        writer.close()
        return session.id
    writer.write(TuningStarted(1, started + 1, *start, choices))
    for name, ms in (timed or {}).items():
        writer.write(ChoiceTimed(1, name, ms))
    writer.write(ChoiceSelected(1, started + 2, took, by, 0.1, 0.1))
    writer.write(SessionEnded(started + 3))
    writer.close()
    return session.id


def swapped(by_inputs: Mapping[str, Mapping[str, Mapping[str, float]]]) -> dict[str, object]:
    """Each entry with its times the other way round."""
    return {
        inputs: {
            precision: dict(zip(told, reversed(list(told.values())), strict=True))
            for precision, told in by_precision.items()
        }
        for inputs, by_precision in by_inputs.items()
    }


def asked(layout: Layout, *texts: object, run: str = "") -> Agreement:
    told = find_selections(layout, [str(text) for text in texts], run)
    return agreement(told.choosers, told.all)


def test_what_each_rank_selected_counts_and_not_what_the_cache_says(tmp_path: Path) -> None:
    """One took what another had timed: both logs are views of one tuning, and differ all the
    same."""
    layout = make_layout(tmp_path / "c")
    ran(layout.root, 0, FAST, timed=TIMED)
    ran(layout.root, 1, PINNED, by="pin")
    found = asked(layout)
    assert [[t.by.rank for t in g.selections] for g in found.differing[0].groups] == [[0], [1]]
    ran(layout.root, 2, FAST, by="cache")
    assert [len(group.selections) for group in asked(layout).differing[0].groups] == [2, 1]


def test_a_warm_graph_tells_what_it_calls(tmp_path: Path) -> None:
    """Its process asks nobody, and its run is the latest one all the same."""
    layout = make_layout(tmp_path / "c")
    for number in range(2):
        ran(layout.root, number, FAST if number else PINNED, timed=TIMED)
        ran(layout.root, number, FAST, by=None, started=NOW + 500)
    assert asked(layout).agree and asked(layout).compared == 1
    ran(layout.root, 2, PINNED, by=None, started=NOW + 500)
    (one,) = asked(layout).differing
    assert [[t.by.rank for t in g.selections] for g in one.groups] == [[0, 1], [2]]
    assert one.unoffered == ()
    said = agree_text.text(asked(layout))
    assert "ranks 0-2: by a compiled graph out of the cache, with which they ask nobody" in said
    ran(layout.root, 0, FAST, by=None, started=NOW + 900)
    assert asked(layout).compared == 0  # that rank's run is the latest one, and it is alone


def test_graphs_are_enough_where_the_cache_is_gone(tmp_path: Path) -> None:
    for number in range(2):
        ran(tmp_path, number, PINNED if number else FAST, by=None)
    (one,) = asked(Layout(tmp_path)).differing
    assert one.row.id == KEY.id and one.standing is None
    ran(tmp_path, 1, FAST, by=None, started=NOW + 500)
    ran(tmp_path, 0, FAST, by=None, started=NOW + 500)
    assert asked(Layout(tmp_path)).agree


def test_the_latest_run_is_compared_and_workers_are_none(tmp_path: Path) -> None:
    layout = make_layout(tmp_path / "c")
    for number, took in enumerate((FAST, PINNED)):
        ran(layout.root, number, took, started=NOW)
        ran(layout.root, number, FAST, started=NOW + 1000)
    ran(layout.root, None, PINNED, started=NOW + 2000, argv=("python", "rocm_tui_worker.py", "x"))
    assert asked(layout).agree
    old = asked(layout, run=f"box-{int(NOW)}-0")
    assert len(old.choosers) == 2 and not old.agree
    both = asked(layout, f"box-{int(NOW)}-1", f"box-{int(NOW + 1000)}-0")
    assert len(both.differing) == 1


def test_a_cache_tells_by_inductors_rule_pins_included(tmp_path: Path) -> None:
    """Also where the file was copied without the pins: a raised number is no winner."""
    a, b = make_layout(tmp_path / "a"), make_layout(tmp_path / "b")
    assert asked(a, a.root, b.root).agree
    PinStore(b).pin(None, KEY, PINNED)
    copied = tmp_path / "copied.json"
    copied.write_bytes(cache_file(b).read_bytes())
    for other in (b.root, cache_file(b), copied):
        found = asked(a, a.root, other)
        taken = {t.by.name: t.choice.hash for t in found.differing[0].selections}
        assert taken == {"a": FAST, found.differing[0].groups[1].selections[0].by.name: PINNED}


def test_a_cache_whose_second_reading_fails_does_not_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = make_layout(tmp_path / "a"), make_layout(tmp_path / "b")
    PinStore(b).pin(None, KEY, PINNED)

    def preferred_of_stale(path: Path) -> object:
        with monkeypatch.context() as broken:
            make_stale(broken, path)
            return preferred(path)

    monkeypatch.setattr("rocm_tui.actions.agree.preferred", preferred_of_stale)
    with pytest.raises(NoSuchSource, match="Stale file handle"):
        asked(a, a.root, b.root)


def test_an_export_is_what_its_host_takes(tmp_path: Path) -> None:
    layout = make_layout(tmp_path / "a")
    told = {KEY.precision: {FAST: 1.5, PINNED: 2.25}}
    gpu = Machine(arch="gfx942", system_hash=SYSTEM, host="node")
    pin = SharedPin(KEY.op, KEY.inputs, KEY.precision, PINNED, PINNED, gpu, timings=told)
    file = tmp_path / "pins.json"
    file.write_text(share_text(PinExport((pin,))))
    found = asked(layout, file, layout.root)
    assert [t.by.name for t in found.differing[0].selections] == ["a", "pins.json"]
    file.write_text(share_text(PinExport((replace(pin, hash=FAST),))))
    assert asked(layout, file, layout.root).agree
    file.write_text(file.read_text()[:-9])
    with pytest.raises(ShareInvalid, match=r"pins\.json"):
        asked(layout, file, layout.root)


def test_all_or_nothing_is_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = {KEY.inputs: {"highest": {FAST: 1.5, PINNED: 2.25}}}
    layout = make_layout(tmp_path / "a", {"mm": other, "bmm": other})
    b = make_layout(tmp_path / "b", {"mm": swapped(other), "bmm": swapped(other)})
    before = cache_file(layout).read_bytes()
    told = find_selections(layout, [str(layout.root), str(b.root)])
    found = agreement(told.choosers, told.all)
    model = told.home or load_model(layout)
    steps = plan_pins(map(propose, found.differing), model, layout)
    assert len(steps) == 2 and cache_file(layout).read_bytes() == before

    wanted = steps[1].wanted
    assert wanted is not None
    rival = PINNED if wanted.hash == FAST else FAST
    PinStore(layout).pin(None, wanted.key, rival, label="another")  # while it is asked about
    with pytest.raises(NotPinnable, match="another was pinned meanwhile by"):
        pin_all(steps, ["", ""], layout)
    assert [pin.hash for pin in PinStore(layout).pins()] == [rival]
    PinStore(layout).unpin(wanted.key)

    def full(self: PinStore, *words: object, **more: object) -> object:
        if PinStore(layout).pins():
            raise PinRefused("the disk is full")
        return pin(self, *words, **more)  # type: ignore[arg-type]

    pin = PinStore.pin
    with monkeypatch.context() as patch:
        patch.setattr(PinStore, "pin", full)
        with pytest.raises(NotPinnable, match="the disk is full; nothing was pinned"):
            pin_all(steps, ["", ""], layout)
    assert PinStore(layout).pins() == () and cache_file(layout).read_bytes() == before

    def overtaken(self: PinStore, *words: object, **more: object) -> object:
        if PinStore(layout).pins():
            pin(self, None, wanted.key, rival, label="another")
            raise Busy("another process holds the lock")
        return pin(self, *words, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(PinStore, "pin", overtaken)
        with pytest.raises(NotPinnable) as caught:
            pin_all(steps, ["", ""], layout)
    assert "1 pin that was made stays, since others changed pins meanwhile" in str(caught.value)
    assert "--undo" not in str(caught.value) and len(PinStore(layout).pins()) == 2
    PinStore(layout).unpin_all()
    pinned = pin_all(steps, ["agreed", "agreed"], layout)
    assert [one.state for one in pinned] == ["active", "active"]
    assert [entry.note for entry in PinStore(layout).history()[-2:]] == ["agreed", "agreed"]
    last = next_undo(layout)
    assert last is not None and last.group and last.group.command == "agree --pin"
    assert len(undo(layout, last)) == 2 and cache_file(layout).read_bytes() == before


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layout = make_layout(tmp_path / "c")
    words = ["agree", "--cache-dir", str(layout.root)]
    assert main(words) == 1  # one cache alone
    assert "recorded choices" in capsys.readouterr().out
    for number in range(2):
        ran(layout.root, number, PINNED if number else FAST, timed=TIMED)
    assert main([*words, "--ranks", "3", "--propose"]) == 1
    out = capsys.readouterr().out
    assert "proposed: mm, by timings, not measured" in out and "rank 2 is missing" in out
    assert main([*words, "--pin"]) == 1 and PinStore(layout).pins() == ()
    assert main([*words, "--pin", "--yes", "--ranks", "3"]) == 1  # rank 2 was not seen
    capsys.readouterr()
    assert main([*words, "--pin", "--yes", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["pins"]["pins"][0]["held"] and not told["agree"]
    assert told["problems"][0]["pinned"] == FAST
    taken = [choice for group in told["problems"][0]["groups"] for choice in group["taken"]]
    assert [choice["compute_units"] for choice in taken] == [None, None], "a CPU has none"
    for number in range(2):
        ran(layout.root, number, FAST, by="pin", started=NOW + 500)
    assert main([*words, "--ranks", "2"]) == 0


def test_a_thousand_ranks(tmp_path: Path) -> None:
    layout = make_layout(tmp_path / "c")
    for number in range(1000):
        ran(layout.root, number, PINNED if number == 250 else FAST)
    found = asked(layout)
    assert [len(group.selections) for group in found.differing[0].groups] == [999, 1]
    assert len(found.pairs) == 1


def test_a_measurement_counts_for_its_problem_on_its_system(tmp_path: Path) -> None:
    layout = make_layout(tmp_path / "c")
    ran(layout.root, 0, FAST, timed=TIMED)
    ran(layout.root, 1, PINNED, by="pin")
    taken = list(find_selections(layout, []).all)
    measured = Measurement(KEY.op, KEY.inputs, KEY.precision, NOW, (), system_hash=SYSTEM)
    assert [t.tuning.measured for t in with_measured(taken, [measured])] == [measured] * 2
    for other in replace(measured, system_hash="cd" * 32), replace(measured, inputs="[]"):
        assert with_measured(taken, [other]) == taken


def test_a_rank_that_selected_nothing_is_one_of_them_and_its_worker_is_not(tmp_path: Path) -> None:
    layout = make_layout(tmp_path / "c")
    ran(layout.root, 0, FAST, timed=TIMED)
    for pid, rank in ((7, 1), (8, None)):
        session = Session(f"box-{pid}", host="box", pid=pid, rank=rank, argv=("train.py",),
                          torch="2.13", started=NOW, system_hash=SYSTEM)  # fmt: skip
        writer = EventWriter(layout, session)
        writer.write(SessionEnded(NOW + 3))
        writer.close()
    assert [who.rank for who in find_selections(layout, [str(layout.root)]).choosers] == [0, 1]


def test_only_what_the_own_cache_dir_holds_is_home(tmp_path: Path) -> None:
    """Pins are planned with what is known there; elsewhere the same key may have other choices."""
    layout, other = make_layout(tmp_path / "a"), make_layout(tmp_path / "b")
    assert find_selections(layout, [str(layout.root)]).home is not None
    assert find_selections(layout, [str(other.root)]).home is None


def test_what_was_not_tuned_in_the_cache_dir_is_not_pinned_there(tmp_path: Path) -> None:
    other = {KEY.inputs: {"highest": {FAST: 1.5, PINNED: 2.25}}}
    here = make_layout(tmp_path / "here", {"bmm": other})
    a = make_layout(tmp_path / "a", {"mm": other})
    b = make_layout(tmp_path / "b", {"mm": swapped(other)})
    told = find_selections(here, [str(a.root), str(b.root)])
    found = agreement(told.choosers, told.all)
    (step,) = plan_pins(map(propose, found.differing), load_model(here), here)
    assert step.why_not == f"it was not tuned in {here.root}, where pins would go to"
    assert step.plan is None and not step.held


@pytest.mark.parametrize(
    ("prefixes", "names"),
    [
        (("(W rank=0 pid=11) ", "(W rank=1 pid=12) "), ["rank 0", "rank 1"]),
        (("(W_TP0 pid=11) ", "(W_TP1 pid=12) "), ["rank 0", "rank 1"]),
        (("(E_DP0 pid=9) (W_TP0 pid=11) ", "(E_DP0 pid=9) (W_TP1 pid=12) "), ["rank 0", "rank 1"]),
        (("[DP0 TP0] ", "[DP1 TP0] "), ["DP0 TP0", "DP1 TP0"]),
        (
            ("(E_DP0 pid=9) (W_TP1 pid=11) ", "(E_DP1 pid=8) (W_TP0 pid=12) "),
            ["E_DP0 pid 9 W_TP1 pid 11", "E_DP1 pid 8 W_TP0 pid 12"],
        ),
        (("(W pid=11, ip=10.0.0.1) ", "(W pid=12, ip=10.0.0.2) "), None),
        (("trainer-0  | ", "trainer-1  | "), ["trainer-0", "trainer-1"]),
        (("red > ", "blue > "), ["blue", "red"]),
    ],
)
def test_processes_of_one_log_are_compared(
    tmp_path: Path,
    prefixes: tuple[str, str],
    names: list[str] | None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Their lines are between each other's; the rank, or else the prefix, names them."""
    texts = (MM, MM.replace("  mm ", "  x ").replace("triton_mm_3", "mm").replace("  x ", "  t "))
    pairs = zip(*(text.splitlines() for text in texts), strict=True)
    lines = [f"{a}{b}" for pair in pairs for a, b in zip(prefixes, pair, strict=True)]
    log = tmp_path / "job.log"
    log.write_text("\n".join(lines) + "\n")
    assert main(["agree", str(log)]) == 1
    shown = capsys.readouterr().out
    assert "0 of 1 problem agrees; 1 differs." in shown
    for name in names or ["W pid 11 ip 10.0.0.1", "W pid 12 ip 10.0.0.2"]:
        assert f"    {name}: " in shown
    assert main(["compare", str(log)]) == 0
    assert "0 of 1 problem agrees; 1 differs." in capsys.readouterr().out


def test_entries_of_tables_are_nothing_that_processes_chose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two tables whose solutions differ in the number alone, which is none of Inductor's."""
    paths = []
    for number in (5, 9):
        path = tmp_path / f"{number}" / "results.csv"
        path.parent.mkdir()
        path.write_text(
            "Validator,PT_VERSION,2.9.0\n"
            f"GemmTunableOp_Half_TN,tn_320_64_128,Gemm_Hipblaslt_TN_{number},0.182\n"
        )
        paths.append(str(path))
    assert main(["agree", *paths]) == 1
    out, err = capsys.readouterr()
    assert "1 problem agrees" not in out
    assert err.count("1 entry of a tuned table left out: they are no tunings of Inductor") == 2
