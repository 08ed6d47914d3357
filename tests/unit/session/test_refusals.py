"""What cannot be done with a tuning: each reason names the way out, and where there is none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.model.choice import Choice, Measurement
from backend.model.tuning import TableEntry, Tuning
from backend.tables.tunableop import UNSCALED
from rocm_tui.session import refusals
from rocm_tui.session.model import Row

HASHED, NAMED = Choice("triton_mm_1", "triton_mm-a", 1.0), Choice("mm", None, 2.0)
LOG = Tuning("mm", ((8, 8), (8, 8)), dtypes=("torch.float32",) * 2, choices=(HASHED, NAMED))
KNOWN = replace(LOG, inputs_key="[]", precision="highest")
ENTRY = replace(LOG, entry=TableEntry("tunableop", 7), sources=("/t/my table.csv",))
MIOPEN = replace(ENTRY, entry=TableEntry("miopen", 3))
UNREAD = replace(MIOPEN, entry=TableEntry("miopen", 3, unread="a pooling"))
UNTUNED = replace(ENTRY, choices=(), entry=TableEntry("tunableop", 7, unread="of no known type"))
INDUCTORS, TRITONS = replace(KNOWN, op="pointwise"), replace(KNOWN, op="triton")
NAMELESS = replace(LOG, shapes=())


def row(tuning: Tuning) -> Row:
    return Row("k", "3fa91c2", 1, tuning)


def test_what_can_be_done_is_not_refused() -> None:
    assert refusals.why_not_inductors(KNOWN) is None
    assert refusals.why_not_known(KNOWN) is None
    assert refusals.why_not_hashed("3fa91c2", [HASHED]) is None
    assert refusals.why_not_pinned_there(KNOWN) is None
    assert refusals.why_not_pinned(row(KNOWN), HASHED) is None
    assert refusals.why_not_alone(KNOWN) is None
    assert refusals.why_not_tried(KNOWN) is None
    assert refusals.why_not_measured(KNOWN, [HASHED]) is None
    assert refusals.why_not_read(HASHED, KNOWN) is None
    assert refusals.why_not_read(HASHED) is None
    assert refusals.why_not_read(NAMED, replace(KNOWN, code="/c/ab/cab.py")) is None
    assert refusals.why_not_tuned(LOG) is None
    assert refusals.why_not_tuned(ENTRY) is None
    assert refusals.why_not_tuned(replace(KNOWN, shapes=(), dtypes=())) is None


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (refusals.why_not_inductors(ENTRY), ("table of tunableop", "rocm-tui tune")),
        (refusals.why_not_known(LOG), ("from a log only", "--cache-dir")),
        (refusals.why_not_known(ENTRY), ("table of tunableop",)),
        (refusals.why_not_hashed("3fa91c2", [HASHED, NAMED]), ("hash of mm", "show 3fa91c2")),
        (refusals.why_not_pinned_there(LOG), ("from a log only",)),
        (refusals.why_not_pinned_there(ENTRY), ("my table.csv:7 SOLUTION",)),
        (refusals.why_not_pinned_there(MIOPEN), ("only read",)),
        (refusals.why_not_pinned(row(ENTRY), HASHED), ("SOLUTION",)),
        (refusals.why_not_pinned(row(KNOWN), None), ("3fa91c2 has no choice",)),
        (refusals.why_not_pinned(row(KNOWN), replace(HASHED, failed=True)), ("failed",)),
        (refusals.why_not_pinned(row(LOG), HASHED), ("from a log only",)),
        (refusals.why_not_pinned(row(KNOWN), NAMED), ("hash of mm", "show 3fa91c2")),
        (refusals.why_not_alone(INDUCTORS), ("Inductor's own", "pin it")),
        (refusals.why_not_alone(TRITONS, "wait"), ("@triton.autotune", "wait")),
        (refusals.why_not_tried(INDUCTORS), ("rocm-tui trial --step",)),
        (refusals.why_not_tried(LOG), ("from a log only",)),
        (refusals.why_not_measured(INDUCTORS, [HASHED]), ("--cache-dir NEW",)),
        (refusals.why_not_measured(TRITONS, [HASHED]), ("TRITON_CACHE_DIR=NEW",)),
        (refusals.why_not_measured(LOG, []), ("from a log only",)),
        (refusals.why_not_measured(KNOWN, []), ("no choice with a time",)),
        (refusals.why_not_measured(LOG, [HASHED]), ("from a log only",)),
        (refusals.why_not_measured(KNOWN, [HASHED, NAMED]), ("hash of mm",)),
        (refusals.why_not_read(None, KNOWN), ("no choice",)),
        (refusals.why_not_read(HASHED, MIOPEN), ("solution of miopen",)),
        (refusals.why_not_read(Choice("X=1", "triton_config-1"), KNOWN), ("its own program",)),
        (refusals.why_not_read(NAMED, KNOWN), ("ATen or of a library",)),
        (refusals.why_not_read(Choice("_linear_pointwise"), KNOWN), ("oneDNN or MKL",)),
        (refusals.why_not_read(Choice("triton_mm_1")), ("hash of triton_mm_1",)),
        (refusals.why_not_tuned(INDUCTORS), ("its own program",)),
        (refusals.why_not_tuned(NAMELESS), ("mm is known without its shapes",)),
        (refusals.why_not_tuned(replace(LOG, dtypes=())), ("mm is known without its shapes",)),
        (refusals.why_not_tuned(UNREAD), ("a pooling", "tuner of miopen alone")),
        (refusals.why_not_tuned(replace(UNREAD, choices=())), ("cover '/t/my table.csv'",)),
        (refusals.why_not_tuned(UNTUNED), ("tune --tunableop -o RESULTS.csv '/t/my table.csv'",)),
        (refusals.why_not_tuned(replace(UNTUNED, choices=(NAMED,))), ("of tunableop alone",)),
        (refusals.why_not_tuned(replace(UNTUNED, sources=())), ("RESULTS.csv FILE",)),
    ],
)  # fmt: skip
def test_a_refusal_names_its_reason_and_the_way_out(
    why: str | None, words: tuple[str, ...]
) -> None:
    assert why is not None
    for word in words:
        assert word in why


def test_an_entry_without_its_sizes_has_no_product_to_tune() -> None:
    assert "rocm-tui tune" not in (refusals.why_not_inductors(replace(ENTRY, shapes=())) or "")


def test_an_fp8_product_without_scales_needs_a_newer_pytorch() -> None:
    unscaled = replace(UNTUNED, entry=TableEntry("tunableop", 7, unread=UNSCALED))
    assert "newer PyTorch" in (refusals.why_not_tuned(unscaled) or "")


def test_a_wrong_result_is_that_of_the_choice_that_was_compared() -> None:
    reasons = (("wrong-1", "wrong result: 3 of 8"), ("crash-2", "it crashed"), ("no-3", None))
    failed = tuple(Choice(hash=hash, failed=True, reason=why) for hash, why in reasons)
    unnamed = Choice("mm", failed=True, reason="wrong result")
    measured = Measurement("mm", "[]", "highest", 1.0, (), failed=(*failed, unnamed))
    found = row(replace(KNOWN, measured=measured))
    assert "3 of 8" in (refusals.why_wrong(found, failed[0]) or "")
    for other in (*failed[1:], HASHED, NAMED):
        assert refusals.why_wrong(found, other) is None
    assert refusals.why_wrong(row(KNOWN), failed[0]) is None
