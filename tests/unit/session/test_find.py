"""Which tuning, choice and cache file a person means, and what is said where it is not one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from backend.disk.layout import Layout
from backend.model.choice import Choice
from backend.model.inductor_kernel import OPS, SYSTEM, TRITON
from backend.model.session import Session
from backend.model.tuning import Pin, Tuning
from rocm_tui.errors import NoSuchChoice, NoSuchTuning
from rocm_tui.session.find import (
    find_choice,
    find_device_choice,
    find_pins,
    find_row,
    system_hash,
)
from rocm_tui.session.model import Row

HASH, OTHER, FIRST = "a" * 64, "b" * 64, "0" * 64
KEYED = Tuning("mm", inputs_key="x", precision="highest")
CUT = Tuning("mm", inputs_key="x", precision="highest", state="cut")


def row(key: str, id_: str, occurrence: int, tuning: Tuning, *aliases: str) -> Row:
    return Row(key, id_, occurrence, tuning, aliases=aliases)


@pytest.mark.parametrize(
    ("text", "key"),
    [("3fa91c2", "b"), ("3fa", "b"), ("3FA", "b"), ("77", "d"), ("9999999", "d"), ("5", "f")],
)
def test_an_id_means_its_latest_tuning_with_a_key_that_is_whole(text: str, key: str) -> None:
    rows = [
        row("a", "3fa91c2", 1, KEYED),
        row("b", "3fa91c2", 2, KEYED),
        row("c", "3fa91c2", 3, CUT),
        row("r", "3fa91c2", 4, replace(KEYED, state="running")),
        row("x", "3fa91c2", 5, Tuning("mm")),
        row("d", "7777777", 1, KEYED, "9999999"),
        row("e", "5555555", 2, Tuning("mm")),
        row("f", "5555555", 1, CUT),
    ]
    assert find_row(rows, text).key == key


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3f", ["begins several", "3fa91c2, 3fb0000", "more digits"]),
        ("999999", ["no tuning", "'999999'", "rocm-tui ls"]),
        ("", ["no tuning"]),
        ("3fa91c3", ["did you mean '3fa91c2'"]),
        ("z\x1b[1m", ["'z"]),
    ],
)
def test_what_is_no_id_is_told(text: str, words: list[str]) -> None:
    rows = [
        row("a", "3fb0000", 1, KEYED),
        row("b", "3fa91c2", 1, KEYED, "9999999"),
        row("c", "3fa91c2", 2, KEYED),
    ]
    with pytest.raises(NoSuchTuning) as raised:
        find_row(rows, text)
    assert all(word in str(raised.value) for word in words) and "\x1b" not in str(raised.value)


CHOICES = (
    Choice("mm", "mm-abc", 0.4),
    Choice("triton_mm_1", "triton_mm-xyz", 0.5),
    Choice("twice", "one-1", 0.6),
    Choice("twice", "two-2", 0.7),
    Choice(None, "cpp-0123456789ab", 0.8),
    Choice("foreign", "foreign-1", 0.9, offered=False),
    Choice("bad", "bad-1", None, failed=True),
    Choice("log"),
    Choice("logs"),
    Choice("logs"),
)
ONE = Tuning("mm", choices=CHOICES)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("mm", 0), ("mm-abc", 0), ("triton_mm_1", 1), ("triton", 1), ("one", 2),
        ("cpp-01234567", 4), ("bad", 6), ("foreign", 5), ("#1", 0), ("#5", 4),
    ],
)  # fmt: skip
def test_a_choice_is_meant_by_name_label_hash_or_place(text: str, at: int) -> None:
    assert find_choice(ONE, text) is CHOICES[at]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("twice", ["several", "one-1, two-2", "hash"]),
        ("t", ["several", "triton_mm-xyz, two-2"]),
        ("triton_mm_2", ["did you mean 'triton_mm_1'"]),
        ("zzz", ["it has mm, triton_mm_1, twice, twice, cpp-01234567"]),
        ("logs", ["several", "logs, logs"]),
        ("#x", ["#1 to #5"]),
        ("#0", ["#1 to #5"]),
        ("#6", ["#1 to #5"]),
        ("#²", ["#1 to #5"]),
        ("#-1", ["#1 to #5"]),
    ],
)
def test_what_is_no_choice_is_told(text: str, words: list[str]) -> None:
    with pytest.raises(NoSuchChoice) as raised:
        find_choice(ONE, text)
    assert all(word in str(raised.value) for word in words) and "foreign" not in str(raised.value)
    with pytest.raises(NoSuchChoice, match="it has none"):
        find_choice(Tuning("mm"), "zzz")
    with pytest.raises(NoSuchChoice, match="was timed"):
        find_choice(Tuning("mm", choices=CHOICES[6:]), "#1")


def test_a_choice_of_any_device_is_meant_by_its_hash() -> None:
    devices = tuple(
        Row(f"k#@{at}", "x", 1, Tuning("mm", choices=(Choice("mm", f"mm-{at}", 1.0),)))
        for at in range(2)
    )
    whole = Row("k", "x", 1, devices[0].tuning, devices=devices)
    assert find_device_choice(whole, "mm-1") == (devices[1], devices[1].tuning.choices[0])
    assert find_device_choice(whole, "mm") == (whole, devices[0].tuning.choices[0])
    with pytest.raises(NoSuchChoice, match="mm-2"):
        find_device_choice(whole, "mm-2")


def test_pins_of_several_texts_come_once() -> None:
    pins = [Pin("mm", f"[{n}]", "highest", "mm-x", "mm", "s", {}) for n in range(2)]
    assert find_pins(pins, [pins[1].id, pins[0].id, pins[1].id]) == [pins[1], pins[0]]
    with pytest.raises(NoSuchTuning, match=r"no pin .*rocm-tui pin"):
        find_pins(pins, ["zz"])


DIGEST = "A" * 52


@pytest.mark.parametrize(
    ("tuning", "name"),
    [
        (Tuning("mm"), None),
        (Tuning("mm", sources=(f"{{}}/cache/{HASH}",)), HASH),
        (Tuning("mm", sources=(f"/else/cache/{HASH}",)), HASH),
        (Tuning("mm", sources=(f"/else/cache/{OTHER}", f"{{}}/cache/{HASH}")), HASH),
        (Tuning("mm", sources=(f"/else/cache/{FIRST}", f"{{}}/cache/{HASH}")), HASH),
        (Tuning("mm", sources=(f"{{}}/cache/{OTHER}",)), None),
        (Tuning("mm", session="s"), HASH),
        (Tuning("mm", session="gone"), None),
        (Tuning("mm", session="hidden"), None),
        (Tuning(sorted(OPS)[0]), SYSTEM),
        (Tuning(TRITON, sources=(f"/x/{DIGEST}/k.autotune.json",)), DIGEST),
        (Tuning(TRITON, sources=("/x/y/k.autotune.json", f"/x/{DIGEST}/k.json")), DIGEST),
        (Tuning(TRITON, sources=("/x/y/k.autotune.json",)), None),
    ],
)
def test_the_cache_file_that_has_a_tuning(tmp_path: Path, tuning: Tuning, name: str | None) -> None:
    layout = Layout(tmp_path)
    layout.autotune.mkdir()
    for there in (HASH, FIRST):
        layout.cache_file(there).write_text("{}")
    (layout.autotune / ".hidden").write_text("{}")
    sessions = {"s": Session("s", system_hash=HASH), "hidden": Session("h", system_hash=".hidden")}
    sources = tuple(source.format(tmp_path) for source in tuning.sources)
    own = Tuning(tuning.op, session=tuning.session, sources=sources)
    assert system_hash(Row("r", "r", 1, own), sessions, layout) == name
