"""A big file is not read line by line, and tells the same."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocm_tui.ingest.formats import stderr_log
from rocm_tui.ingest.formats.autotune_lines import MARKERS
from rocm_tui.ingest.formats.autotune_tables import PATIENCE
from tests.support.log_lab import BMM, LOGLIKE, LOGS, MM, needs_corpus, read
from tests.support.scan_lab import FILLER, scanned


@needs_corpus
@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_the_corpus_is_the_same(path: Path) -> None:
    data = path.read_bytes()
    assert scanned(data) == read(data)
    half = len(data) // 2
    assert scanned(data[:half], data[half:]) == read(data)


def mixture(seed: int) -> bytes:
    """Megabytes of training log with tables, halves of tables, and traps between."""
    rng = random.Random(seed)
    tables = [path.read_bytes() for path in LOGS if path.stat().st_size < 20_000]
    tables += [MM.encode(), BMM.encode(), BMM[:120].encode() + b"\n", b"AUTOTUNE mm(1x2, 2x3)\n"]
    parts: list[bytes] = []
    for _ in range(25):
        parts.append(FILLER.encode() * rng.choice([0, 1, 13, 800, 8000]))
        table = rng.choice(tables)
        parts.append(rng.choice([table, table[: rng.randrange(len(table) + 1)]]))
        traps = [b"", b"SingleProcess AUTOTUNE takes", b"out of resource\n", b"\0" * 5000, b"\n"]
        parts.append(rng.choice(traps))
    if seed % 2:
        parts.insert(rng.randrange(len(parts)), b"x" * 3_000_000 + b"\r" + MM.encode())
    return b"".join(parts)


@pytest.mark.parametrize("seed", range(6))
def test_mixtures_are_the_same(seed: int) -> None:
    data = mixture(seed)
    whole = read(data)
    assert scanned(data) == whole
    cut = random.Random(seed).randrange(len(data))
    assert scanned(data[:cut], data[cut:]) == whole


@settings(max_examples=100)
@given(LOGLIKE, st.integers(0, 4000), st.sampled_from([0, 1, 900, 4000]))
def test_anything_is_the_same(text: str, cut: int, fill: int) -> None:
    data = FILLER.encode() * fill + text.encode("utf-8", "surrogatepass")
    data += FILLER.encode() * fill + text.encode("utf-8", "surrogatepass")
    whole = read(data)
    assert scanned(data) == whole
    assert scanned(data[:-cut] if cut else data, data[-cut:] if cut else b"") == whole


@pytest.mark.parametrize("seed", range(40))
def test_lines_without_an_end_are_cut_alike(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the bytes come, and whether the file is searched or read."""
    monkeypatch.setattr(stderr_log, "_READ", 90)
    monkeypatch.setattr(stderr_log, "MAX_LINE", 300)
    rng = random.Random(seed)
    tokens = [*MM.split("\n"), *BMM.splitlines(keepends=True), MM, "x" * 250, "x" * 900, "\r"]
    tokens += ["\\n", "\n", *(marker.decode() for marker, _ in MARKERS), "é" * 170, " ms 1.0 ms "]
    far = FILLER * 1000 if seed % 2 else ""
    data = (far + "".join(rng.choices(tokens, k=80)) + far).encode()
    data += "".join(rng.choices(tokens, k=80)).encode()
    whole = read(data)
    assert read(data, [rng.randrange(len(data)) for _ in range(60)]) == whole
    assert read(data, list(range(0, len(data), 7))) == whole
    assert scanned(data) == whole
    cut = rng.randrange(len(data))
    assert scanned(data[:cut], data[cut:]) == whole


def test_a_table_without_an_end_does_not_stay_open_for_ever() -> None:
    table = MM.rpartition("SingleProcess")[0]
    late = "  triton_mm_9 0.0400 ms 25.0% \n"
    result = read(table + FILLER * (2 * PATIENCE // len(FILLER)) + late)
    assert [len(t.choices) for t in result.tunings] == [2]


@pytest.mark.parametrize("rare", [1000, 2])
def test_markers_are_found_at_every_offset(rare: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stderr_log, "_RARE", rare)
    draw = random.Random(7)
    data = bytes(draw.choice(b".UTAE\n") for _ in range(500))
    for marker, letter in MARKERS:
        for at in range(0, 400, 7):
            text = data[:at] + marker + data[at:]
            for end in (at + len(marker) - 1, at + len(marker), len(text)):
                assert stderr_log._find(text, marker, letter, 0, end) == text.find(marker, 0, end)
