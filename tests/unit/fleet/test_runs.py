"""Runs of a fleet with real child processes that wait instead of tuning: throughput, failures, what
is merged, what another driver finds."""

from __future__ import annotations

import fcntl
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from backend.cache.autotune import read_cache
from backend.cache.journal import Journal, Tuned, line_of, tuned_in
from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from rocm_tui.actions.fleet import Run, Wanted
from rocm_tui.fleet import lines
from rocm_tui.fleet.messages import Unit
from rocm_tui.fleet.pipe import Pipes
from rocm_tui.fleet.places import lock_path
from rocm_tui.fleet.protocol import NotAFleet
from rocm_tui.fleet.record import (
    NoRun,
    Reader,
    Record,
    RecordFull,
    ask_to_cancel,
    driver_lives,
    record_path,
)
from rocm_tui.fleet.standing import Standing
from rocm_tui.render.fleets import outcome
from tests.support.store_disks import mounted
from tests.support.waiting_agent import HASH, waiting_starts, waiting_unit

WANTED = Wanted(fleet=("test",), canary=False)


def names(count: int) -> list[str]:
    return [f"a{n}" for n in range(count)]


def begin(root: Path, units: list[Unit], wanted: Wanted = WANTED) -> Run:
    return Run.begin(Layout(root), wanted, units)


def read(root: Path, run: str) -> Standing:
    standing = Standing()
    standing.apply(Reader(record_path(Layout(root), run)).news())
    return standing


def cached(root: Path) -> set[str]:
    entries = read_cache(Layout(root).autotune / HASH).entries
    return {key.inputs for key in entries}


def test_eight_devices_are_seven_and_a_half_times_as_fast(tmp_path: Path) -> None:
    """The best of three, each with longer units: the machine may be busy with something else."""
    gains = []
    for seconds in (0.2, 0.5, 1.0):
        root = tmp_path / str(seconds)
        root.mkdir()
        gains.append(gain_of_eight(root, [waiting_unit(n, seconds) for n in range(80)]))
        if gains[-1] >= 7.5:
            return
    raise AssertionError(gains)


def gain_of_eight(root: Path, units: list[Unit]) -> float:
    """How many times as fast as one device: from when all are there to the last result."""
    with begin(root, units) as run:
        run.work(Pipes(waiting_starts(names(8))))
    news = Reader(run.path).news()
    begun = max(at for at, line in news if isinstance(line, lines.Came))
    ended = [at for at, line in news if isinstance(line, lines.Done)]
    assert min(ended) > begun and len(ended) == len(units)  # work begins when all are there
    assert read(root, run.name).counts().merged == len(units)
    assert cached(root) == {unit.job.inputs for unit in units}
    return sum(unit.weight for unit in units) / (max(ended) - begun)


def test_what_fails_is_told_and_the_rest_is_tuned(tmp_path: Path) -> None:
    units = [waiting_unit(1, 0.05), waiting_unit(2, 0.05, "fails"), waiting_unit(3, 0.05, "own")]
    told: list[str] = []
    with begin(tmp_path, units) as run:
        run.work(Pipes(waiting_starts(names(2))), told.append)
    found = list(read(tmp_path, run.name).units.values())
    assert [unit.state for unit in found] == ["merged", "failed", "failed"]
    assert [len(unit.reasons) for unit in found] == [0, 2, 1]
    assert sum("was not tuned" in line for line in told) == 2


def test_a_problem_with_one_choice_is_nothing_to_tune_and_no_failure(tmp_path: Path) -> None:
    """However many devices were asked for; who goes on with the run does not ask again."""
    units = [waiting_unit(1, 0.05), waiting_unit(2, 0.05, "single"), waiting_unit(3, 0.05, "own")]
    told: list[str] = []
    with begin(tmp_path, units[:2], replace(WANTED, repeat=2)) as run:
        run.work(Pipes(waiting_starts(names(2))), told.append)
    standing = read(tmp_path, run.name)
    assert [unit.state for unit in standing.units.values()] == ["merged", "single"]
    assert [unit.reasons for unit in standing.units.values()] == [(), ("there is one",)]
    assert told == [] and standing.counts().ok and standing.counts().left == 0
    assert outcome(standing).endswith(
        " of 2 tuned and in the cache, 1 has one choice: nothing to tune"
    )
    with Run.resume(Layout(tmp_path), WANTED, run.name) as again:
        again.work()
    counts = read(tmp_path, run.name).counts()
    assert counts.ok and (counts.merged, counts.single) == (1, 1)
    with begin(tmp_path, units[1:]) as run:
        run.work(Pipes(waiting_starts(names(1))))
    assert not read(tmp_path, run.name).counts().ok


def test_an_agent_that_is_killed_is_started_again(tmp_path: Path) -> None:
    fleet = Pipes(waiting_starts(["a"]), again=(0.1,))
    told: list[str] = []

    def kill() -> None:
        if run.standing.counts().merged and not told:
            told.append("killed")
            fleet._agents["a"].process.kill()  # type: ignore[union-attr]

    with begin(tmp_path, [waiting_unit(n, 0.6) for n in range(3)]) as run:
        run.work(fleet, look=kill)
    assert told and read(tmp_path, run.name).counts().merged == 3
    lost = [line for _, line in Reader(run.path).news() if isinstance(line, lines.Lost)]
    assert [(line.agent, line.returns) for line in lost] == [("a", True)]
    assert "signal 9" in lost[0].reason


def test_another_system_hash_is_refused_by_name_and_other_units_are_kept_apart(
    tmp_path: Path,
) -> None:
    starts = waiting_starts(names(2)) | waiting_starts(["other"], "6" * 64)
    starts |= waiting_starts(["mi308x"], HASH, "80")
    told: list[str] = []
    with begin(tmp_path, [waiting_unit(n, 0.05) for n in range(6)]) as run:
        run.work(Pipes(starts), told.append)
    agents = read(tmp_path, run.name).agents
    assert sum(agents[name].done for name in ("a0", "a1")) == 6  # one may be late with its own
    assert "555555555555" in agents["other"].refused and "666666666666" in agents["other"].refused
    assert "80 CUs" in agents["mi308x"].refused and "--class" in agents["mi308x"].refused
    assert sum("gets no work" in line for line in told) == 2
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [HASH]


def test_one_cards_set_gets_into_the_file_and_it_is_told_where_the_winner_holds(
    tmp_path: Path,
) -> None:
    starts = waiting_starts(names(3)) | waiting_starts(["odd"], HASH, "304", "0.5")
    wanted = Wanted(fleet=("test",), repeat=4, canary=False)
    with begin(tmp_path, [waiting_unit(1, 0.05)], wanted) as run:
        run.work(Pipes(starts))
    [unit] = read(tmp_path, run.name).units.values()
    assert unit.merged is not None and (unit.merged.holds, unit.merged.of) == (3, 4)
    assert unit.merged.agent != "odd" and unit.merged.winner == "mm-1"
    times = read_cache(Layout(tmp_path).autotune / HASH).entries[TuningKey("mm", "[1]", "highest")]
    assert times == {"mm-1": 1.0, "mm-2": 2.0}


def test_a_canary_finds_the_slow_card(tmp_path: Path) -> None:
    starts = waiting_starts(names(3)) | waiting_starts(["slow"], HASH, "304", "1.3")
    told: list[str] = []
    with begin(tmp_path, [waiting_unit(n, 0.05 + n / 10) for n in range(5)]) as run:
        run._wanted = Wanted(fleet=("test",), canary=True)
        run.work(Pipes(starts), told.append)
    agents = read(tmp_path, run.name).agents
    assert {name: agent.slow for name, agent in agents.items() if agent.slow} == {"slow": 1.3}
    assert any("slow is slow: 1.30 x" in line for line in told)


def test_a_run_is_gone_on_with_and_nothing_is_tuned_twice(tmp_path: Path) -> None:
    with begin(tmp_path, [waiting_unit(n, 0.3) for n in range(4)]) as run:
        fleet = Pipes(waiting_starts(["a"]))

        def stop() -> None:
            if run.standing.counts().merged:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run.work(fleet, look=stop)
    with Path(run.path).open("ab") as stream:
        stream.write(b'{"is":"merged","unit":"00000')  # what a kill tore
    with Run.resume(Layout(tmp_path), WANTED, run.name[:15]) as again:
        with pytest.raises(NoRun, match="another driver"):
            Run.resume(Layout(tmp_path), WANTED, run.name)
        again.work(Pipes(waiting_starts(["b"])))
    news = [line for _, line in Reader(run.path).news()]
    done = [line.done.unit for line in news if isinstance(line, lines.Done)]
    assert len(done) == len(set(done)) == 4 and len(cached(tmp_path)) == 4


def test_a_cancelled_problem_is_left_and_the_others_go_on(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    asked: list[str] = []

    def cancel() -> None:
        if not asked and run.standing.counts().running:
            asked.append("0000002")
            ask_to_cancel(layout, run.name, "0000002")

    with begin(tmp_path, [waiting_unit(1, 0.1), waiting_unit(2, 60)]) as run:
        run.work(Pipes(waiting_starts(names(2))), look=cancel)
    states = {id: unit.state for id, unit in read(tmp_path, run.name).units.items()}
    assert states == {"0000001": "merged", "0000002": "cancelled"}
    with pytest.raises(NoRun, match="no driver"):
        ask_to_cancel(layout, run.name, None)


def test_a_disk_that_is_full_loses_nothing(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk") as root:
        with begin(root, [waiting_unit(n, 0.2) for n in range(3)]) as run:
            filler = root / "filler"

            def fill() -> None:
                if run.standing.counts().merged and not filler.exists():
                    with pytest.raises(OSError), filler.open("wb", buffering=0) as stream:
                        while stream.write(b"x" * 4096):
                            pass

            with pytest.raises(RecordFull, match=r"the disk is full.*--resume"):
                run.work(Pipes(waiting_starts(["a"])), look=fill)
        filler.unlink()
        with Run.resume(Layout(root), WANTED, None) as again:
            again.work(Pipes(waiting_starts(["b"])))
        counts = read(root, run.name).counts()
        assert (counts.merged, counts.left) == (3, 0) and len(cached(root)) == 3


def test_what_the_journal_cannot_take_stays_in_the_record(tmp_path: Path) -> None:
    tuned = tmp_path / "rocm_tui" / "tuned"
    with begin(tmp_path, [waiting_unit(1, 0.05)]) as run:
        tuned.write_text("in the way")
        told: list[str] = []
        run.work(Pipes(waiting_starts(["a"])), told.append)
    assert any("stays in the record" in line for line in told)
    assert read(tmp_path, run.name).counts().left == 1
    tuned.unlink()
    with Run.resume(Layout(tmp_path), WANTED, run.name) as again:
        again.work()  # no fleet is needed
    assert read(tmp_path, run.name).counts().merged == 1
    lines_ = Journal(tmp_path, Layout(tmp_path).autotune / HASH)
    assert tuned_in(lines_.folded_path.read_bytes()) and cached(tmp_path) == {"[1]"}


def test_a_journal_that_a_killed_driver_left_gets_into_the_file(tmp_path: Path) -> None:
    with begin(tmp_path, [waiting_unit(1, 0.05)]) as run:
        run.work(Pipes(waiting_starts(["a"])))
    path = Layout(tmp_path).autotune / HASH
    path.unlink()
    tuned = Tuned("mm", "[2]", "highest", {"mm-1": 1.0}, 1.0)
    Journal(tmp_path, path).append(line_of(tuned))
    with Run.resume(Layout(tmp_path), WANTED, run.name) as again:
        again.work()
    assert cached(tmp_path) == {"[2]"} and read_cache(path).system == {"hash": HASH}


def test_who_reads_the_record_sees_what_each_device_has(tmp_path: Path) -> None:
    seen: list[tuple[str | None, list[str], str]] = []

    def look() -> None:
        agent = read(tmp_path, run.name).agents.get("a")
        if agent is not None and agent.unit is not None and not seen:
            seen.append((agent.unit, list(agent.leases.values()), agent.state))

    with begin(tmp_path, [waiting_unit(n, 0.6) for n in range(2)]) as run:
        run.work(Pipes(waiting_starts(["a"])), look=look)
    assert seen == [("0000000", ["0000000", "0000001"], "works")]
    standing = read(tmp_path, run.name)
    assert standing.agents["a"].state == "ended" and standing.rate(time.time()) is not None


@pytest.mark.parametrize(
    ("words", "said"), [("locl", "did you mean 'local'"), ("ssh://gpu1", "use --fleet ray$")]
)
def test_words_that_are_no_fleet_leave_no_new_run_and_take_none_away(
    tmp_path: Path, words: str, said: str
) -> None:
    wanted = Wanted(fleet=(words,))
    no_fleet = pytest.raises(NotAFleet, match=said)
    with begin(tmp_path, [waiting_unit(1, 0.1)], wanted) as run, no_fleet:
        run.work()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    with begin(tmp_path, [waiting_unit(1, 0.1)]) as run:
        pass  # killed before any device was there
    again = Run.resume(Layout(tmp_path), wanted, run.name)
    with again, pytest.raises(NotAFleet):
        again.work()
    assert read(tmp_path, run.name).counts().left == 1


def test_a_run_of_very_many_problems_is_read_back(tmp_path: Path) -> None:
    """Its first line has them all, and is longer than what is read at once."""
    known = {f"{n:064x}": n / 7 for n in range(1, 101)}
    units = [replace(waiting_unit(n, 0.0), known=known) for n in range(2_000)]
    with begin(tmp_path, units) as run:
        size = run.path.stat().st_size
        run._write(lines.Cancelled(units[0].id))
    assert size > 16 << 20
    reader = Reader(run.path)
    assert [type(line) for _, line in reader.news()] == [lines.Begun, lines.Cancelled]
    assert reader.news() == []
    counts = read(tmp_path, run.name).counts()
    assert (counts.units, counts.cancelled) == (2_000, 1)


def test_the_record_is_one_drivers_alone(tmp_path: Path) -> None:
    record = Record(Layout(tmp_path), "r")
    with pytest.raises(NoRun):
        Record(Layout(tmp_path), "r")
    record.close()
    Record(Layout(tmp_path), "r").close()


def test_a_lock_goes_with_its_driver_and_is_never_two_drivers(tmp_path: Path) -> None:
    """Each that ends removes it, while others try to take it."""
    layout, held, most = Layout(tmp_path), list[int](), list[int]()

    def drive(me: int) -> None:
        for _ in range(40):
            with suppress(NoRun):
                record = Record(layout, "run")
                held.append(me)
                most.append(len(held))
                time.sleep(0.001)
                held.remove(me)
                record.close()
            driver_lives(layout, "run")

    with ThreadPoolExecutor(4) as drivers:
        list(drivers.map(drive, range(4)))
    assert max(most) == 1 and not driver_lives(layout, "run")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_two_who_ask_for_a_driver_are_none(tmp_path: Path) -> None:
    """The screen asks each second: beside it a command said that a run was at work."""
    layout = Layout(tmp_path)
    left = lock_path(layout, "run")  # by a driver that was killed
    left.parent.mkdir(parents=True)
    left.touch()
    with left.open() as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert not driver_lives(layout, "run")
    record = Record(layout, "run")
    assert driver_lives(layout, "run")
    record.close()
