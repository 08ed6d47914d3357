"""The caches of a CPU, from folders as Linux has them."""

from __future__ import annotations

from pathlib import Path

from backend.measure.devices import cpu_caches


def tell(root: Path, cpu: int, index: int, **facts: str) -> None:
    folder = root / f"cpu{cpu}" / "cache" / f"index{index}"
    folder.mkdir(parents=True)
    for name, text in facts.items():
        (folder / name).write_text(f"{text}\n")


def test_each_is_counted_once_and_the_first_level_not_at_all(tmp_path: Path) -> None:
    for cpu in range(4):
        core = f"{cpu // 2 * 2}-{cpu // 2 * 2 + 1}"
        tell(tmp_path, cpu, 0, level="1", type="Data", size="48K", shared_cpu_list=core)
        tell(tmp_path, cpu, 1, level="1", type="Instruction", size="64K", shared_cpu_list=core)
        tell(tmp_path, cpu, 2, level="2", type="Unified", size="2048K", shared_cpu_list=core)
        tell(tmp_path, cpu, 3, level="3", type="Unified", size="32M", shared_cpu_list="0-3")
    assert cpu_caches(range(4), tmp_path) == {2: 4 << 20, 3: 32 << 20}
    assert cpu_caches([0], tmp_path) == {2: 2 << 20, 3: 32 << 20}


def test_what_linux_does_not_tell_is_not_guessed(tmp_path: Path) -> None:
    tell(tmp_path, 0, 2, level="2", type="Unified", size="much", shared_cpu_list="0")
    tell(tmp_path, 0, 3, level="3", type="Unified", shared_cpu_list="0")
    assert cpu_caches([0, 7], tmp_path) == {} == cpu_caches([0], tmp_path / "none")


def test_sizes_are_in_the_units_of_linux(tmp_path: Path) -> None:
    for index, size in enumerate(("512", "3K", "2M", "1G")):
        tell(tmp_path, 0, index, level=str(index + 2), type="Data", size=size, shared_cpu_list="0")
    assert cpu_caches([0], tmp_path) == {2: 512, 3: 3072, 4: 2 << 20, 5: 1 << 30}
