"""An autotune cache entry of a box with several devices is one tuning for each of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from backend.cache import variants
from backend.cache.variants import DeviceModule, read_module
from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice
from backend.model.events import ChoiceSelected, ChoiceTimed, TuningStarted
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.ingest import devices
from rocm_tui.ingest.devices import device_index_in
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.ingest.formats.cache_file import parse
from rocm_tui.ingest.records import Seen
from tests.support.device_modules import ATEN, MM, SYSTEM, compiled_on, write_box, write_choice

TIMES = {0: (0.010, 0.012), 1: (0.013, 0.011)}


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    devices._hashes_of.cache_clear()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the modules that are read."""
    keys: list[str] = []

    def noted(root: Path, key: str) -> DeviceModule | None:
        keys.append(key)
        return read_module(root, key)

    monkeypatch.setattr(variants, "read_module", noted)
    return keys


def entries(root: Path) -> list[Seen]:
    path = root / "cache" / SYSTEM
    records = parse(path.read_bytes(), str(path))
    return [record for record in records if isinstance(record, Seen)]


def tunings(root: Path) -> list[Tuning]:
    return [seen.tuning for seen in entries(root)]


def times(tuning: Tuning) -> dict[str | None, float | None]:
    return {choice.hash: choice.ms for choice in tuning.choices}


def test_each_device_has_its_own_choices_and_those_of_all(tmp_path: Path) -> None:
    hashes = write_box(tmp_path, TIMES)
    first, second = tunings(tmp_path)
    assert (first.device_index, second.device_index) == (0, 1)
    assert times(first) == {**dict(zip(hashes[0], TIMES[0], strict=True)), ATEN: 0.02}
    assert times(second) == {**dict(zip(hashes[1], TIMES[1], strict=True)), ATEN: 0.02}
    assert [c.hash for c in second.choices] == [hashes[1][1], hashes[1][0], ATEN]
    assert [c.identity for c in second.choices] == [hashes[0][1], hashes[0][0], None]
    for tuning in (first, second):
        assert [choice.hash for choice in tuning.choices if choice.shared] == [ATEN]
        assert all(choice.offered for choice in tuning.choices) and tuning.num_choices == 3


def test_a_tuning_keeps_its_place_when_another_device_tunes_it(tmp_path: Path) -> None:
    write_box(tmp_path, {0: TIMES[0]})
    (alone,) = entries(tmp_path)
    write_box(tmp_path, TIMES)
    first, second = entries(tmp_path)
    assert alone.uid == first.uid != second.uid
    assert alone.tuning.device_index is None and first.tuning.device_index == 0


def test_one_process_for_several_devices_has_one_folder_of_triton(tmp_path: Path) -> None:
    hashes = write_box(tmp_path, TIMES)
    (tmp_path / "triton" / "1").rmdir()
    assert [tuning.device_index for tuning in tunings(tmp_path)] == [0, 1]
    assert [c.hash for c in tunings(tmp_path)[1].choices] == [hashes[1][1], hashes[1][0], ATEN]


def test_one_module_of_an_entry_is_read_where_one_device_compiled(
    tmp_path: Path, read: list[str]
) -> None:
    write_box(tmp_path, {3: TIMES[0]})
    (only,) = tunings(tmp_path)
    assert len(read) == 1 and only.device_index is None
    assert not any(choice.shared or choice.identity for choice in only.choices)


def test_one_module_tells_the_hashes_of_all_devices_and_is_read_once(
    tmp_path: Path, read: list[str]
) -> None:
    write_box(tmp_path, dict.fromkeys(range(4), TIMES[0]))
    assert len(tunings(tmp_path)) == 4 and len(read) == len(TIMES[0])
    assert len(tunings(tmp_path)) == 4 and len(read) == len(TIMES[0])


def test_a_kernel_for_any_device_is_a_choice_of_all(tmp_path: Path) -> None:
    hashes = write_box(tmp_path, {0: (0.01,), 7: (0.02,)})
    path = tmp_path / "cache" / SYSTEM
    for_any = write_choice(tmp_path, None, BLOCK_M=256)
    path.write_text(path.read_text().replace(ATEN, for_any))
    first, last = tunings(tmp_path)
    assert (first.device_index, last.device_index) == (0, 7)
    assert set(times(first)) == {*hashes[0], for_any} and set(times(last)) == {*hashes[7], for_any}


def test_a_choice_of_an_unknown_device_is_set_beside_no_other(tmp_path: Path) -> None:
    hashes = write_box(tmp_path, {0: (0.010,), 1: (0.013,)})
    path = tmp_path / "cache" / SYSTEM
    lost = f"triton_mm-c{'a' * 51}"
    path.write_text(path.read_text().replace(hashes[1][0], lost))
    (only,) = tunings(tmp_path)
    assert only.device_index == 0 and only.num_choices == 2
    assert {c.hash: c.offered for c in only.choices} == {
        hashes[0][0]: True,
        ATEN: True,
        lost: False,
    }


def test_without_modules_there_is_one_tuning_of_an_unknown_device(tmp_path: Path) -> None:
    write_box(tmp_path, TIMES)
    for module in tmp_path.glob("??/*.py"):
        module.unlink()
    (only,) = tunings(tmp_path)
    assert only.device_index is None and len(only.choices) == 5


def write_log(root: Path, hashes: list[str]) -> Path:
    writer = EventWriter(Layout(root), Session("s", "node", 9, started=1.8e9))
    offers = tuple(Choice(f"triton_mm_{n}", name) for n, name in enumerate(hashes))
    operands = ((64, 32), (32, 16)), ((32, 1), (16, 1)), ("torch.float16",) * 2
    writer.write(TuningStarted(1, 1.8e9, "mm", MM, "highest", *operands, "cuda", offers))
    for n, name in enumerate(hashes):
        writer.write(ChoiceTimed(1, name, 0.01 + n / 1000))
    writer.write(ChoiceSelected(1, 1.8e9, hashes[0], "timing", 1.0, 1.0))
    writer.close()
    (path,) = Layout(root).sessions.iterdir()
    return path


def test_a_session_log_is_of_the_device_whose_kernels_it_tells_of(tmp_path: Path) -> None:
    hashes = write_box(tmp_path, TIMES)
    log = write_log(tmp_path, hashes[1])
    (seen,) = [r for r in read_sources([str(log)]) if isinstance(r, Seen)]
    assert seen.tuning.device_index == 1
    elsewhere = tmp_path / "logs" / "old" / "s.jsonl"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_bytes(log.read_bytes())
    (seen,) = [r for r in read_sources([str(elsewhere)]) if isinstance(r, Seen)]
    assert seen.tuning.device_index is None
    for module in tmp_path.glob("??/*.py"):
        module.unlink()
    devices._hashes_of.cache_clear()
    (seen,) = [r for r in read_sources([str(log)]) if isinstance(r, Seen)]
    assert seen.tuning.device_index is None


def test_a_session_log_with_one_device_reads_no_module(tmp_path: Path, read: list[str]) -> None:
    hashes = write_box(tmp_path, {0: TIMES[0]})
    log = write_log(tmp_path, hashes[0])
    (seen,) = [r for r in read_sources([str(log)]) if isinstance(r, Seen)]
    assert seen.tuning.device_index is None and not read


def test_generated_code_names_its_device(tmp_path: Path) -> None:
    for index in (0, 7):
        name = write_choice(tmp_path, index, kind="hip")
        key = name.rpartition("-")[2]
        assert device_index_in((tmp_path / key[1:3] / f"{key}.py").read_text()) == index
    assert device_index_in("DeviceProperties(type='cpu', index=None, ") is None


def test_a_folder_of_a_device_without_kernels_of_its_own_changes_nothing(tmp_path: Path) -> None:
    hashes = write_box(tmp_path, {0: TIMES[0]})
    compiled_on(tmp_path, 1)
    (only,) = tunings(tmp_path)
    assert only.device_index == 0 and set(times(only)) == {*hashes[0], ATEN}
    assert not any(choice.shared for choice in only.choices)
