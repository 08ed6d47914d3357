"""The journal of new timings: its lines, its views of a parsed cache file, and what was folded."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from backend.cache.fold import fold
from backend.cache.journal import (
    NOTHING,
    Index,
    Journal,
    JournalFold,
    JournalRead,
    Tuned,
    append_lines,
    apply,
    line_of,
    missing_timings,
    tuned_in,
    view,
    written,
)
from backend.model.problem import TuningKey
from backend.pins.holders import pinned_choices


def tuned(inputs: str = "[a]", **timings: float) -> Tuned:
    return Tuned("mm", inputs, "highest", timings, 7.0)


def index() -> Index:
    times: Any = {"c0": 1.0, "c1": 2, "text": "3.0", "flag": True, "null": None}
    odd: Any = {"[odd]": [], "[flat]": {"highest": 7}}
    return {"mm": {"[a]": {"highest": times}, **odd}}


def test_a_view_has_the_numbers_of_the_file_and_nothing_else() -> None:
    inputs = view(index())["mm"]
    assert "[a]" in inputs and "[b]" not in inputs and "[odd]" not in inputs and 5 not in inputs
    assert inputs["[a]"] == inputs.get("[a]") == {"highest": {"c0": 1.0, "c1": 2}}
    assert inputs["[flat]"] == {"highest": {}}
    assert inputs.get("[b]") is None and inputs.get("[b]", 7) == 7
    for name in ("[b]", "[odd]"):
        with pytest.raises(KeyError):
            inputs[name]
    assert inputs.setdefault("[a]", {}) == {"highest": {"c0": 1.0, "c1": 2}}
    made = inputs.setdefault("[b]", {"highest": {}})
    assert inputs["[b]"] is made and inputs.setdefault("[b]", {}) is made


def test_what_is_written_into_a_view_is_returned_and_changes_no_index() -> None:
    stored = index()
    looked_up = view(stored)
    looked_up["mm"]["[a]"]["highest"]["c2"] = 3.0
    looked_up["mm"].setdefault("[b]", {}).setdefault("highest", {})["c0"] = 4.0
    looked_up.setdefault("bmm", {}).setdefault("[c]", {}).setdefault("high", {})["c0"] = 5.0
    assert looked_up["mm"]["[a]"]["highest"]["c2"] == 3.0
    before = time.time()
    news = written(looked_up)
    assert [(t.op, t.inputs, t.precision, dict(t.timings)) for t in news] == [
        ("mm", "[a]", "highest", {"c2": 3.0}),
        ("mm", "[b]", "highest", {"c0": 4.0}),
        ("bmm", "[c]", "high", {"c0": 5.0}),
    ]
    assert all(before - 1 <= t.when <= time.time() for t in news)
    assert stored == index()
    assert written(view(stored)) == []


def test_new_timings_are_added_to_an_index_and_no_part_of_it_is_changed() -> None:
    stored = index()
    part, times = stored["mm"]["[a]"], stored["mm"]["[a]"]["highest"]
    apply(stored, tuned(c0=9.0, c2=3.0))
    assert stored["mm"]["[a]"]["highest"] == {**times, "c0": 9.0, "c2": 3.0}
    assert part == index()["mm"]["[a]"] and times["c0"] == 1.0
    apply(stored, Tuned("mm", "[a]", "high", {"c0": 1.0}, 7.0))
    assert stored["mm"]["[a]"].keys() == {"highest", "high"}
    apply(stored, tuned("[odd]", c0=1.0))
    apply(stored, Tuned("bmm", "[a]", "highest", {"c0": 1.0}, 7.0))
    assert stored["mm"]["[odd]"] == stored["bmm"]["[a]"] == {"highest": {"c0": 1.0}}


def test_which_timings_an_index_lacks() -> None:
    assert missing_timings(index(), tuned(c0=9.0)) is None
    assert missing_timings(index(), tuned(c0=9.0, c2=3.0)) == tuned(c2=3.0)
    for other in (tuned("[b]", c0=1.0), tuned("[odd]", c0=1.0), tuned("[flat]", c0=1.0)):
        assert missing_timings(index(), other) == other
    assert missing_timings({}, tuned(c0=1.0)) == tuned(c0=1.0)


def test_lines_of_other_kinds_are_passed_over() -> None:
    line = line_of(tuned(c0=1.0))
    assert tuned_in(b"\n7\n[]\n" + line + b"{}\n" + line[:-9] + b"\n" + line) == [tuned(c0=1.0)] * 2


def test_a_journal_is_read_from_where_the_last_reading_ended(tmp_path: Path) -> None:
    journal = Journal(tmp_path, tmp_path / "cache" / "s")
    assert journal.read() == NOTHING and journal.signature() is None
    first, second = line_of(tuned(c0=1.0)), line_of(tuned("[b]", c0=2.0))
    journal.append(first)
    assert journal.path == tmp_path / "rocm_tui" / "tuned" / "s.jsonl"
    assert (tmp_path / "rocm_tui" / "locks" / "tuned-s.lock").exists()
    header = json.loads(journal.path.read_bytes().splitlines()[0])
    assert header.keys() == {"journal", "fold"} and header["fold"] is None
    early = journal.read()
    assert (early.id, early.lines, early.fold) == (header["journal"], first, None)
    assert early.end == journal.path.stat().st_size and journal.signature() is not None
    journal.append(second)
    assert journal.read(early).lines == second and journal.read(early).id == early.id
    assert journal.read().lines == first + second
    assert journal.read(JournalRead("another", b"", early.end)).lines == first + second
    with journal.path.open("ab") as stream:
        stream.write(second[:-5])
    assert journal.read(early).lines == second, "a torn line is not read"


def test_a_journal_names_the_choices_of_a_tuning_until_they_are_folded(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "s"
    journal = Journal(tmp_path, path)
    key = TuningKey("mm", "[a]", "highest")
    assert journal.choices(key) == set()
    for line in (tuned(c0=1.0), tuned(c1=math.inf), tuned("[b]", c2=1.0)):
        journal.append(line_of(line))
    assert journal.choices(key) == {"c0", "c1"}
    fold(tmp_path, path, {}, pinned_choices)
    assert journal.choices(key) == set() and "c1" in path.read_text()


def test_a_torn_line_is_ended_by_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    assert append_lines(path, b"a\n", b"first\n") == 8
    assert append_lines(path, b"b", b"first\n") == 9
    assert append_lines(path, b"c\n", b"first\n") == 12
    assert path.read_bytes() == b"first\na\nb\nc\n"


def test_a_new_journal_begins_behind_what_was_folded(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "s"
    journal = Journal(tmp_path, path)
    first, second = line_of(tuned(c0=1.0)), line_of(tuned("[b]", c0=2.0))
    journal.append(first)
    folded = journal.read()
    journal.append(second)
    before, after = (1, 2, 3), (4, 5, 6)
    journal.rotate(folded, before, after)
    now = journal.read()
    assert now.lines == second and now.id not in ("", folded.id)
    assert now.fold == JournalFold(folded.id, folded.end, before, after)
    assert now.is_all_of(after) and now.is_all_of(None) and not now.is_all_of(before)
    assert journal.rest(NOTHING, now.fold) == first
    assert journal.rest(folded, now.fold) == b""
    journal.rotate(now, before, None)
    assert (journal.read().lines, journal.read().fold) == (b"", None)
    assert journal.read().is_all_of(None) and not journal.read().is_all_of(after)


def test_a_journal_without_a_name_is_folded_from_an_unknown_state(tmp_path: Path) -> None:
    journal = Journal(tmp_path, tmp_path / "cache" / "s")
    line = line_of(tuned(c0=1.0))
    journal.append(line)
    content = journal.path.read_bytes()
    journal.path.write_bytes(content.split(b"\n", 1)[1])  # its first line is lost
    folded = journal.read()
    assert (folded.id, folded.lines) == ("", line)
    journal.rotate(folded, (1, 2, 3), (4, 5, 6))
    fold = journal.read().fold
    assert fold is not None and fold.before is None


def test_folded_lines_that_cannot_be_kept_are_done_without(tmp_path: Path) -> None:
    journal = Journal(tmp_path, tmp_path / "cache" / "s")
    journal.append(line_of(tuned(c0=1.0)))
    journal.folded_path.mkdir()
    folded = journal.read()
    journal.rotate(folded, (1, 2, 3), (4, 5, 6))
    fold = journal.read().fold
    assert fold is not None and journal.rest(NOTHING, fold) is None
