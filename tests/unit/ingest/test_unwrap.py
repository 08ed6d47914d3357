"""What loggers, containers and terminals put around a line changes nothing of what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from backend.model.session import Fault
from rocm_tui.harmless import clean
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.ingest.formats.unwrap import HardWraps, unwrap
from rocm_tui.ingest.records import Seen
from tests.support.log_lab import MM, read
from tests.support.scan_lab import FILLER, scanned
from tests.support.wrapped_logs import PLAIN, WRAPPED, Wrap, hard_wrapped, wrapped

BASE = read("\n".join(PLAIN) + "\n")


def without_rank(log: str) -> list[object]:
    result = read(log)
    assert not result.problems
    return [(t.op, t.shapes, t.strides, t.dtypes, t.choices, t.num_choices, t.seconds, t.state)
            for t in result.tunings]  # fmt: skip


@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_a_wrapped_log_says_what_the_plain_one_does(wrap: Wrap) -> None:
    log = wrapped(wrap)
    assert len(BASE.tunings) == 2 and len(WRAPPED) >= 40
    assert without_rank(log) == without_rank("\n".join(PLAIN) + "\n")
    far = wrapped(wrap, [FILLER.strip()]) * 1000
    assert scanned((far + log).encode()) == read(far + log)
    assert len(read(far + log).tunings) == 2


@pytest.mark.parametrize("width", [72, 80, 100, 120, 132])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_cut_at_a_width_are_joined(width: int, end: str) -> None:
    log = hard_wrapped(width).replace("\n", end)
    assert without_rank(log) == without_rank("\n".join(PLAIN) + "\n")
    far = FILLER * 1000
    assert scanned((far + log).encode()) == read(far + log)


def test_a_row_that_ends_in_the_middle_of_a_setting_is_a_problem() -> None:
    for end in ("num_stages=2,", "num_stages=", "num_stages=2, num_war"):
        cut = read(MM.replace("num_warps=2", f"num_warps=2, {end}"))
        (problem,) = cut.problems
        assert problem.what.startswith("the configuration of triton_mm_3 cannot be read: ")
        assert problem.line == 5


def test_a_full_row_is_not_joined_with_what_follows() -> None:
    row = next(line for line in PLAIN if "triton_mm_7 0.0431" in line)
    for after in ("epoch 1 loss=3", "lr=0.1, loss=3.0", "done", "", "x" * 300):
        wraps = HardWraps()
        lines = [line for text in (row, after) for line, _ in wraps.feed(text.encode(), 1)]
        assert [*lines, *(line for line, _ in wraps.rest())] == [row.encode(), after.encode()]


def test_what_ray_left_out_is_counted() -> None:
    lines = [*PLAIN]
    lines[7] += " [repeated 7x across cluster]"
    lines[3] += (
        "\x1b[32m [repeated 3x across cluster] (Ray deduplicates logs by default. Set"
        " RAY_DEDUP_LOGS=0 to disable log deduplication, or see https://docs.ray.io ...)\x1b[0m"
    )
    result = read("".join(f"(W pid=11) {line}\n" for line in lines))
    assert [t.choices for t in result.tunings] == [t.choices for t in BASE.tunings]
    assert [t.strides for t in result.tunings] == [t.strides for t in BASE.tunings]
    assert [(p.line, p.what.partition(" of")[0]) for p in result.problems] == [
        (4, "Ray merged 3 lines"),
        (8, "Ray merged 7 lines"),
    ]


def test_a_text_that_stands_twice_is_said_once() -> None:
    line = {"text": "12:00:01 | INFO - AUTOTUNE mm(1x2, 2x3)\n", "m": "AUTOTUNE mm(1x2, 2x3)"}
    assert [each.text for each in unwrap(json.dumps(line).encode())] == ["AUTOTUNE mm(1x2, 2x3)"]
    both = {"a": "  mm 0.1 ms 100.0%", "b": "  bmm 0.1 ms 100.0%"}
    assert len(list(unwrap(json.dumps(both).encode()))) == 2


def test_strings_in_strings_are_looked_into_up_to_a_depth() -> None:
    text = "AUTOTUNE mm(1x2, 2x3)"
    for _ in range(12):
        text = json.dumps({"x": text})
    assert len(text) > 10_000
    assert all("mm(1x2" in each.text for each in unwrap(text.encode()))


@pytest.mark.parametrize("piece", ['"', '\\"', '"AUTOTUNE ', "\\", '{"a": ', '"x ms ', '\\\\"'])
def test_quotes_without_an_end_cost_no_more_than_their_length(piece: str) -> None:
    """A search that began anew at each quote would take hours."""
    line = piece * (200_000 // len(piece)) + " AUTOTUNE mm(1x2, 2x3)"
    assert len(list(unwrap(line.encode()))) < 200_000


@settings(max_examples=200)
@given(st.text(max_size=200), st.sampled_from(['{"m": "%s"}', 'm="%s"', "%s", "[rank1]: %s"]))
def test_nothing_unwrapped_acts_on_a_terminal(text: str, shape: str) -> None:
    line = (shape % f"AUTOTUNE mm(1x2) {text}").replace("\n", " ")
    for each in unwrap(line.encode("utf-8", "surrogatepass")):
        assert clean(each.text) == each.text


@settings(max_examples=100)
@example("\x9b\t")
@example("\x1b\b[36m")
@given(st.text(max_size=100))
def test_any_text_comes_back_out_of_json(text: str) -> None:
    said = f"AUTOTUNE mm(1x2) {text}".replace("\n", " ").replace("\r", " ").replace('"', "'")
    said = said.replace("\\", "/").encode("utf-8", "replace").decode()
    for ascii_only in (True, False):
        line = json.dumps({"m": said}, ensure_ascii=ascii_only)
        assert [each.text for each in unwrap(line.encode())] == [
            each.text for each in unwrap(said.encode())
        ]


@pytest.mark.parametrize("name", ["pod.jsonl", "pod.ndjson", "pod.log"])
@pytest.mark.parametrize("wrap", WRAPPED.values(), ids=WRAPPED)
def test_a_wrapped_log_is_recognised_as_a_file_and_in_a_folder(
    tmp_path: Path, name: str, wrap: Wrap
) -> None:
    """No other format takes it for its own: a session log has `event` first, as structlog has."""
    (tmp_path / name).write_text(wrapped(wrap))
    for source in (tmp_path, tmp_path / name):
        records = read_sources([str(source)])
        assert {r.tuning.op for r in records if isinstance(r, Seen)} == {"mm", "addmm"}
        assert not [r for r in records if isinstance(r, Fault)]
