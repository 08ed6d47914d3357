"""The grammar of a filter and the order of rows, on real logs."""

from __future__ import annotations

import random
import string
from dataclasses import replace
from pathlib import Path

import pytest

from backend.model.choice import Choice
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.errors import QueryError
from rocm_tui.session.model import Row
from rocm_tui.session.query.complete import Completion
from rocm_tui.session.query.fields import BY_NAME, FIELDS, FieldValues, Known
from rocm_tui.session.query.grammar import EVERYTHING, LONGEST, parse, read
from rocm_tui.session.query.match import ordered, predicate

NOW = 1_000_000.0


def row(key: str, op: str = "mm", *, gain: float | None = None, **of_tuning: object) -> Row:
    """A tuning of two choices, whose fastest is that much faster than ATen."""
    choices: tuple[Choice, ...] = ()
    if gain is not None:
        choices = (Choice("triton_mm_1", "triton_mm-a", 2.0), Choice(op, f"{op}-b", 2.0 * gain))
    given = {"dtypes": ("torch.bfloat16",) * 2, "choices": choices, **of_tuning}
    tuning = Tuning(op, **given)  # type: ignore[arg-type]
    return Row(key, key, 1, tuning, seen=tuning.when)


SESSIONS = {
    "s1": Session("s1", "vm", 51, 3, torch="2.13.0+rocm7", device="AMD Instinct MI300X",
                  arch="gfx942:sramecc+:xnack-"),
    "s2": Session("s2", "vm", 5163, 0, torch="2.11.0", device="cpu"),
}  # fmt: skip
ROWS = [
    row("a", gain=1.5, rank=3, session="s1", device="cuda:0", when=NOW - 60,
        shapes=((128, 4096), (4096, 512)), sources=("/logs/run1/train.log",)),
    row("b", "addmm", gain=1.01, rank=0, session="s2", device="cpu", when=NOW - 7000),
    row("c", "int_mm", dtypes=("torch.int8",) * 2, when=NOW - 90000, state="running"),
    row("d", "bmm", choices=(Choice("bmm", "bmm-x", None, failed=True),)),
]  # fmt: skip
FACTS = FieldValues(Known(SESSIONS, NOW))


def found(text: str) -> str:
    passes = predicate(parse(text), FACTS)
    return "".join(row.key for row in ROWS if passes(row))


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("", "abcd"),
        ("mm", "abcd"),
        ("op:mm", "a"),
        ("op:*mm", "abcd"),
        ("op:mm,bmm", "ad"),
        ("OP:MM", "a"),
        ("addmm bf16", "b"),
        ("dtype:bf16", "abd"),
        ("dtype:bfloat16 !op:mm", "bd"),
        ("gain>1.2", "a"),
        ("gain>=1.5x gain:1.5", "a"),
        ("gain:1..2", "ab"),
        ("time:50us..3ms", "ab"),
        ("gain:..1.2", "b"),
        ("gain:1.2..", "a"),
        ("failed:1..1", "d"),
        ("gain:none", "cd"),
        ("gain:*", "ab"),
        ("lead<2%", "b"),
        ("time>1ms", "ab"),
        ("time>2000.5us", ""),
        ("time:2", "ab"),
        ("age<2h", "ab"),
        ("age<5min", "a"),
        ("!age<2h", "cd"),
        ("rank:3", "a"),
        ("rank:0,3", "ab"),
        ("rank:none", "cd"),
        ("state:failed", "d"),
        ("state:running", "c"),
        ("failed>0", "d"),
        ("choices>1", "ab"),
        ("device:gfx942", "a"),
        ("device:mi300x", "a"),
        ("device:cuda", "a"),
        ("device:cpu", "b"),
        ("session:vm-51", "a"),
        ("session:vm-51*", "ab"),
        ("session:vm torch:2.13", "a"),
        ("source:train.log", "a"),
        ("source:run1", "a"),
        ("source:train", ""),
        ("shape:4096", "a"),
        ("shape:4096x512", "a"),
        ("shape:128×512×4096", "a"),
        ("shape:409", ""),
        ("by:triton", "ab"),
        ("winner:triton_mm*", "ab"),
        ("verdict:tie", "b"),
        ("tie", "b"),
        ("-tie -op:mm", "cd"),
        ("NOT op:mm", "bcd"),
        ("op:mm OR op:bmm", "ad"),
        ("op:mm | op:bmm rank:0", "a"),
        ("(op:mm | op:addmm) rank:0", "b"),
        ("!(op:mm OR op:addmm)", "cd"),
        ('"bf16 triton"', "ab"),
        ("!!op:mm", "a"),
    ],
)
def test_what_passes(text: str, keys: str) -> None:
    assert found(text) == keys, parse(text)


@pytest.mark.parametrize(
    ("text", "character", "what"),
    [
        ("mm dtpe:bf16", 4, "no field is called dtpe; did you mean dtype?"),
        ("gain>", 1, "gain> wants a value, as in gain>1.2"),
        ("gain>fast", 6, "gain wants a number"),
        ("time>1h", 6, "time wants one of the units ns, us, µs, ms, s"),
        ("age<2", 5, "age wants one of the units"),
        ("choices:5..2", 9, "5 is more than 2: write choices:2..5"),
        ("time:1,3ms..50us", 8, "3ms is more than 50us: write time:50us..3ms"),
        ("op>mm", 1, "op is no number: op:mm"),
        ("gain>1..2", 6, "gain wants a number"),
        ("(mm", 1, "no ) ends this ("),
        ("mm)", 3, "no ( before this )"),
        ("mm ()", 4, "nothing between"),
        ("mm OR", 4, "OR needs a condition"),
        ("| mm", 1, "OR needs a condition"),
        ('op:"mm', 4, "ends this one"),
        ("mm !", 4, "! and - go right before"),
        ("mm - op:mm", 4, "! and - go right before"),
        ("@mine", 1, "no filter is saved as mine"),
        ("(" * 30 + "x", 21, "more than 20 parentheses"),
        ("x" * (LONGEST + 1), LONGEST + 1, "at most"),
    ],
)
def test_a_fault_names_its_place(text: str, character: int, what: str) -> None:
    with pytest.raises(QueryError, match=f"^filter, character {character}: ") as raised:
        parse(text)
    assert what in str(raised.value)


@pytest.mark.parametrize(
    "text", ["dtype:", "op:mm dtype:", "gain>", "op:mm (", "op:mm OR", ")op:mm", '"']
)
def test_half_a_filter_lets_through_what_the_rest_does(text: str) -> None:
    reading = read(text)
    assert reading.faults
    assert reading.query == parse("op:mm" if "mm" in text else "")


def test_saved_filters_stand_for_themselves() -> None:
    saved = {"wins": "gain>1.2 OR verdict:tie", "mine": "@wins op:mm", "loop": "@loop"}
    assert parse("@mine", saved) == parse("(gain>1.2 OR verdict:tie) op:mm")
    assert parse("!@wins", saved) == parse("!(gain>1.2 OR verdict:tie)")
    with pytest.raises(QueryError, match="loop holds itself"):
        parse("@loop", saved)
    with pytest.raises(QueryError, match="did you mean @wins"):
        parse("@winz", saved)


def test_no_saved_filters_make_a_filter_endless() -> None:
    saved = {f"f{at}": f"@f{at + 1} @f{at + 1} @f{at + 1}" for at in range(19)} | {"f19": "mm"}
    with pytest.raises(QueryError, match="too many others"):
        parse("@f0", saved)


@pytest.mark.parametrize(("text", "deep"), [("@f0", 20), ("((@f0))", 18)])
def test_saved_filters_within_each_other_have_a_limit(text: str, deep: int) -> None:
    saved = {f"f{at}": f"@f{at + 1}" for at in range(deep - 1)} | {f"f{deep - 1}": "op:mm"}
    assert parse(text, saved) == parse("op:mm")
    with pytest.raises(QueryError, match="holds itself, or too many others"):
        parse(text, {**saved, f"f{deep - 1}": f"@f{deep}", f"f{deep}": "op:mm"})


def test_every_example_is_a_filter_of_its_field() -> None:
    for field in FIELDS:
        assert parse(field.example) != EVERYTHING, field.name
        assert field.example.startswith(field.name)


PIECES = [
    *(field.example for field in FIELDS), "(", ")", "!", "-", "OR", "|", "NOT", "@x", '"', "'",
    ":", "<", ">=", "=", ",", "..", "none", "*", " ", "×", "é", "\x1b[31m", "\0", "1e999", "𝟙", "٣",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_any_text_is_a_filter_or_a_query_error(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(1500):
        pieces = [*PIECES, "".join(draw.choices(string.printable, k=3))]
        text = "".join(draw.choices(pieces, k=draw.randrange(1, 12)))
        passes = predicate(read(text).query, FACTS)
        assert [passes(row) for row in ROWS], "any tree can be asked of any row"
        try:
            parse(text)
        except QueryError:
            continue
        assert not read(text).faults


@pytest.mark.parametrize(
    "text",
    ["(" * LONGEST, "!" * LONGEST, "(a|" * 600, "a " * 1000, "op:" + "*a" * 900, '"' * LONGEST,
     "gain>" + "1" * 1900, "op:" + "," * 1900, "- " * 1000, "a:" * 1000],
)  # fmt: skip
def test_long_texts_are_filters(text: str) -> None:
    many = replace(ROWS[0], tuning=replace(ROWS[0].tuning, op="a" * 5000), key="long")
    assert predicate(read(text).query, FACTS)(many) in (False, True)


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_what_is_unknown_stands_last_both_ways(field: object) -> None:
    by = BY_NAME[field.name]  # type: ignore[attr-defined]
    one, other = ordered(ROWS, by, FACTS, False), ordered(ROWS, by, FACTS, True)
    assert {r.key for r in one} == {r.key for r in other} == set("abcd")
    known = [r for r in one if predicate(parse(f"{by.name}:*"), FACTS)(r)]
    assert one[: len(known)] == known, "the unknown ones stand last"
    assert {r.key for r in other[: len(known)]} == {r.key for r in known}


def test_orders() -> None:
    def keys(name: str, reverse: bool = False) -> str:
        return "".join(row.key for row in ordered(ROWS, BY_NAME[name], FACTS, reverse))

    assert keys("gain") == "abcd" and keys("gain", True) == "bacd"
    assert keys("rank") == "bacd" and keys("rank", True) == "abcd"
    assert keys("op") == "bdca" and keys("op", True) == "acdb"
    assert keys("age") == "abcd" and keys("age", True) == "cbad"


def test_rows_of_unknown_age_stand_as_in_their_source() -> None:
    """Newest first, as all rows; so the oldest first is the other way round."""
    undated, age = [replace(ROWS[3], key=key) for key in "xyz"], BY_NAME["age"]
    for reverse, keys in ((False, "xyz"), (True, "zyx")):
        assert "".join(row.key for row in ordered(undated, age, FACTS, reverse)) == keys


def test_nine_conditions_on_five_thousand_rows() -> None:
    rows = [replace(ROWS[at % 4], key=str(at)) for at in range(5000)]
    facts = FieldValues(Known(SESSIONS, NOW))
    text = "op:mm dtype:bf16 gain>1.2 !pinned device:gfx942 rank:3 lead>2% time>1ms (age<2h | tie)"
    assert len(list(filter(predicate(parse(text), facts), rows))) == 1250


def test_rows_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    facts = FieldValues(Known(SESSIONS, NOW))
    rows = [replace(ROWS[0], key=str(at)) for at in range(100)]
    list(map(predicate(parse("op:mm"), facts), rows))
    facts.keep(rows[:10], 10)
    assert facts.held == 10


def test_what_rows_are_called_is_offered_with_how_many_there_are() -> None:
    completion = Completion(ROWS, FACTS, {})
    offers = {offer.text: offer.about for offer in completion.offers("mm rank:")}
    assert offers == {"mm rank:3": "1 tuning", "mm rank:0": "1 tuning"}
    assert [offer.text for offer in completion.offers("op:m")] == ["op:mm"]
    assert completion.offers("rank:3") == completion.offers("gain:1") == []


SAVED = {"slow": "gain:<1.1", "big": "M:>4096"}


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("", ["@slow", "@big"]),
        ("mm ", []),
        ("mm @s", ["mm @slow"]),
        ("@slow", []),
        ("mm forget b", ["mm forget big"]),
        ("forget big", []),
        ("mm sa", ["mm save "]),
        ("sa", []),
        ("forg", ["forget "]),
        ("mm ga", ["mm gain>"]),
        ("mm addm", ["mm op:addmm"]),
        ("nothing:x", []),
        ("op:mm,add", ["op:mm,addmm"]),
        ("mm gain>", ["mm gain>"]),
        ("gain>1", []),
    ],
)
def test_what_may_follow_is_offered(text: str, offered: list[str]) -> None:
    offers = [offer.text for offer in Completion(ROWS, FACTS, SAVED).offers(text)]
    if text:
        assert offers == offered
    else:  # then every field
        assert offers[:2] == offered and len(offers) == 2 + len(FIELDS)


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("time:2000us", "ab"), ("time:0.002s", "ab"), ("time:2e6ns", "ab"), ("time:2µs", ""),
        ("age:1min", "a"), ("age<120m", "ab"), ("age<25h", "ab"), ("age<=25h", "abc"),
        ("age<1.04d", "ab"), ("age<1.05d", "abc"), ("age<0.15w", "abc"), ("age>=60s", "abc"),
        ("lead:1", "b"), ("lead>=0.5x", "a"), ("gain:1,1.5", "ab"), ("gain:+1.5", "a"),
        ("gain:1.5e0", "a"), ("by:ours", ""), ("tuner:inductor", "abcd"), ("id:a,b", "ab"),
        ("state:done", "abd"), ("shape:x4096x", "a"), ("shape:4096x51", ""), ("tflops>0", "a"),
        ("source:/logs/run1/train.log", "a"), ("session:s1", "a"), ("host:vm", "ab"),
        ("torch:2.13.0+rocm7", "a"), ("device:gpu", "a"), ("device:amd", "a"), ("type:int8", "c"),
        ("device:cuda:0", "a"), ("n:2", "ab"), ("choices:0", "c"), ("verdict:tied", "b"),
        ("NOT NOT op:mm", "a"), ("op:mm|op:bmm", "ad"), ("op:'mm'", "a"), ('op:"mm",bmm', "ad"),
        ("op:,mm", "a"), ("op:none", ""), ("failed:0", "abc"), ("winner:tri*_1", "ab"),
        ("winner:tri*mm*1", "ab"), ("winner:x*", ""), ("op:b*", "d"), ("op:*m*m", "abcd"),
        ("op:m*m", "a"), ("op:mm*m", ""), ("op:a*d*d*d*m", ""), ("op:*int*", "c"),
    ],
)  # fmt: skip
def test_units_names_and_patterns(text: str, keys: str) -> None:
    assert found(text) == keys, parse(text)


def test_sorting_begins_with_the_most_but_for_age_and_rank() -> None:
    assert {f.name for f in FIELDS if f.kind == "number" and not f.largest} == {"age", "rank"}
    small, large = (row(key, shapes=((m, 8), (8, 8))) for key, m in (("s", 4), ("l", 64)))
    assert ordered([small, large], BY_NAME["shape"], FACTS, False) == [large, small]
    odd = row("o", "new", shapes=((5, 5, 5),))
    rows = ordered([odd, small, row("u", "new"), large], BY_NAME["shape"], FACTS, False)
    assert [each.key for each in rows] == ["l", "s", "o", "u"]
    later, same = row("t", when=NOW), row("a", when=NOW - 60)
    assert ordered([ROWS[0], later, same], BY_NAME["age"], FACTS, False)[0] is later


WITH_MORE = Completion([*ROWS, row("e", "new op"), row("f")], FieldValues(FACTS.known), SAVED)


@pytest.mark.parametrize(
    ("text", "offered"),
    [
        ("OP:B", ["OP:bmm"]),
        ("(op:b", ["(op:bmm"]),
        ("!op:b", ["!op:bmm"]),
        ("-op:b", ["-op:bmm"]),
        ("mm|op:b", ["mm|op:bmm"]),
        ("op:n", ['op:"new op"']),
        ('op:"n', []),
        ("new", ['op:"new op"']),
        ("typ", ["dtype:"]),
        ("device:cu", ["device:cuda:0", "device:cuda"]),
        ("device:", ["device:gfx942", "device:cpu"]),
        ("shape:40", ["shape:4096"]),
        ("choices:", ["choices:0", "choices:2", "choices:1"]),
        ("failed:", ["failed:0", "failed:1"]),
        ("rank=", ["rank=3", "rank=0"]),
        ("gain<", ["gain<"]),
        ("gain:", []),
        ("gain=", []),
        ("lead>1", []),
        ("by:", ["by:triton"]),
        ("state:", ["state:done", "state:running", "state:failed"]),
        ("forget", ["forget "]),
        ("mm forget", ["mm forget "]),
        ("mm forget ", []),
        ("mm save x", []),
        ("@", ["@slow", "@big"]),
        ("x @b", ["x @big"]),
        ("sav", []),
        ("session:vm", ["session:vm-51", "session:vm-5163"]),
        ("op:mm", []),
        ("session:s", ["session:s1", "session:s2"]),
        ("winner:", ["winner:triton_mm_1"]),
    ],
)
def test_what_may_follow_of_each_kind(text: str, offered: list[str]) -> None:
    assert [offer.text for offer in WITH_MORE.offers(text)] == offered


def test_offers_say_what_they_are_and_are_not_too_many() -> None:
    assert [(o.word, o.about) for o in WITH_MORE.offers("TYPE:bf")] == [("bf16", "5 tunings")]
    (example,) = WITH_MORE.offers("gain<")
    assert example.word == BY_NAME["gain"].example and example.about == BY_NAME["gain"].about
    many = [row(str(at), f"op{at}") for at in range(50)]
    assert len(Completion(many, FieldValues(Known({}, NOW)), {}).offers("op:op")) == 40


def test_rows_are_read_again_only_if_they_changed() -> None:
    facts = FieldValues(Known(SESSIONS, NOW))
    read_op, read_age = facts.reader(BY_NAME["op"]), facts.reader(BY_NAME["age"])
    assert read_op(ROWS[0]) is read_op(ROWS[0]) and read_age(ROWS[0]) == 60.0
    facts.known = Known(SESSIONS, NOW + 5)
    assert read_age(ROWS[0]) == 65.0, "what changes with time is read each time"
    changed = replace(ROWS[0], tuning=replace(ROWS[0].tuning, op="bmm"))
    assert read_op(changed) == ("bmm",) and facts.held == 1
    for at in range(4):
        read_op(replace(ROWS[0], key=str(at)))
    facts.keep(ROWS[:1], 3)
    assert facts.held == 5, "they are less than twice as many"
    facts.keep(ROWS[:1], 2)
    assert facts.held == 1
