"""`--quiet`: the tables go, everything else stays, and nothing waits for long."""

from __future__ import annotations

import random
import re
import tracemalloc
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocm_tui.launch.stderr import TableFilter
from tests.support.hooked import BMM, launch_program, sessions
from tests.support.places import CORPUS

TABLE = (
    b"Autotune Choices Stats:\n"
    b'{"num_choices": 2, "num_triton_choices": 0, "best_kernel": "bmm", "best_time": 0.5}\n'
    b"AUTOTUNE bmm(8x128x256, 8x256x192)\n"
    b"strides: [32768, 256, 1], [49152, 192, 1]\n"
    b"dtypes: torch.float32, torch.float32\n"
    b"  bmm 0.5696 ms 100.0% \n"
    b"  triton_bmm_1 0.6 ms 88.4% BLOCK_K=32, FLOAT32_PRECISION=\"'ieee'\", num_warps=4\n"
    b"  cpp_CppMicroGemmFP32Vec_0 inf ms 0.0% \n"
    b"SingleProcess AUTOTUNE benchmarking takes 3.0105 seconds and 0.0001 seconds precompiling "
    b"for 2 choices\n"
)


def filtered(*pieces: bytes) -> bytes:
    table_filter = TableFilter()
    return b"".join(map(table_filter.feed, pieces)) + table_filter.release()


def prefixed(prefix: bytes) -> bytes:
    return b"".join(prefix + line for line in TABLE.splitlines(keepends=True))


@pytest.mark.parametrize("part", [b"\t", b"[a]", b"\x1b[m"])
def test_a_long_prefix_without_a_line_end_takes_little_memory(part: bytes) -> None:
    line = part * (1_000_000 // len(part))
    tracemalloc.start()
    try:
        assert filtered(TABLE, line) == line
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "prefix", [b"", b"[rank0]:", b"[default1]:", b"2026-01-14T08:40:12.93Z ", b"\x1b[36m", b"    "]
)
def test_a_table_goes_and_its_neighbours_stay(prefix: bytes) -> None:
    assert filtered(b"before\n" + prefixed(prefix) + b"after\n") == b"before\nafter\n"


def test_two_ranks_whose_lines_alternate() -> None:
    lines = TABLE.splitlines(keepends=True)
    both = b"".join(line for line in lines for _ in range(2))
    assert filtered(b"loss 1.5\n", both, b"loss 1.4\n") == b"loss 1.5\nloss 1.4\n"


def test_a_bar_on_the_headers_line_stays() -> None:
    bar = b"\r 10%|#         | 1/10 [00:01<00:09]"
    assert filtered(bar + TABLE + bar + b"\n") == bar + bar + b"\n"
    assert filtered(bar, TABLE, bar, b"\n") == bar + bar + b"\n"


@pytest.mark.parametrize(
    "text",
    [
        b"epoch 1 took 3.5 ms 99.0% of the time\n",
        b"AUTOTUNE is on\n",
        b"strides: [1]\ndtypes: torch.int8\n",
        b'{"num_things": 2}\n',
        b"  step 0.1 ms 3.0% idle\n",
    ],
)
def test_text_that_only_looks_like_it_stays(text: bytes) -> None:
    assert filtered(text) == text


@pytest.mark.parametrize(
    "begun", [b"Password: ", b"\r 50%|##", b"[rank0]: loss", b"a", b"\x1b[31mx"]
)
def test_a_begun_line_that_cannot_be_ours_is_not_held(begun: bytes) -> None:
    table_filter = TableFilter()
    assert table_filter.feed(begun) == begun and not table_filter.held


def test_what_may_be_ours_is_held_and_can_be_released() -> None:
    table_filter = TableFilter()
    assert table_filter.feed(b"AUTO") == b"" and table_filter.held
    assert table_filter.release() == b"AUTO" and not table_filter.held
    assert table_filter.feed(b" mode\n") == b" mode\n"


@given(st.lists(st.integers(0, len(TABLE) + 20), max_size=12))
def test_pieces_make_no_difference(cuts: list[int]) -> None:
    text = b"before\n" + TABLE + b"after\n"
    ends = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})
    pieces = [text[a:b] for a, b in pairwise(ends)]
    assert filtered(*pieces) == b"before\nafter\n"


@given(st.binary(max_size=300))
def test_other_bytes_pass_unchanged(data: bytes) -> None:
    assert filtered(data) == data


@pytest.mark.skipif(not CORPUS.is_dir(), reason="needs the folder of real logs beside the checkout")
def test_real_logs_lose_their_tables_alone() -> None:
    """No header stays, and each line that went was a table's, or now ends another line."""
    headers = re.compile(rb"(?m)^(?:\[\w+\]:? ?|\d{4}-[\dT:. -]+Z )?AUTOTUNE \w+\(.*\)\s*$")
    telling = re.compile(rb"AUTOTUNE|Autotune Choices|num_choices|strides:|dtypes:|[\d.inf]+ ms ")
    seen = 0
    for path in sorted(CORPUS.glob("*.log")):
        data = path.read_bytes()[: 4 << 20]
        seen += len(headers.findall(data))
        rng, pieces, at = random.Random(path.name), [], 0
        while at < len(data):
            pieces.append(data[at : (at := at + rng.randrange(1, 60_000))])
        kept = filtered(*pieces)
        assert not headers.findall(kept), path.name
        gone = Counter(data.split(b"\n")) - Counter(kept.split(b"\n"))
        ends = tuple(line for line in gone if not telling.search(line))
        glued = list(Counter(kept.split(b"\n")) - Counter(data.split(b"\n")))
        assert [e for e in ends if not any(line.endswith(e) for line in glued)] == [], path.name
    assert seen > 100


@pytest.mark.torch
def test_a_real_table_is_hidden_and_kept(tmp_path: Path) -> None:
    program = "import sys\nprint('mine', file=sys.stderr)\n" + BMM + "print('end', file=sys.stderr)"
    done = launch_program(program, tmp_path / "cache", "--quiet")
    first, second, summary, *_ = done.stderr.splitlines()
    assert (first, second) == ("mine", "end")
    assert summary.startswith("rocm-tui: 1 tuning recorded in ")
    (kept,) = (tmp_path / "cache" / "rocm_tui" / "sessions").glob("*.stderr.log")
    assert kept.read_text().count("AUTOTUNE bmm(") == 1
    assert len(sessions(tmp_path / "cache")) == 1
