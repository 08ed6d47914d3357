"""A repeated measurement reaches its tuning, and its verdict replaces the tie band."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.model.choice import Choice, MeasuredChoice, Measurement, Verdict
from backend.model.events import SessionStarted, TuningMeasured
from backend.model.session import Session
from backend.model.tuning import Tuning
from backend.wire.events import decode, encode
from rocm_tui.ingest.formats.event_log import EventLog
from rocm_tui.ingest.records import Gone, MeasurementSeen, Seen
from rocm_tui.render.pins import pin_warning
from rocm_tui.session import stats
from rocm_tui.session.model import Model

KEY = "[('cpu', 'torch.float32', 8, 8, 8, 1, 0), ('cpu', 'torch.float32', 8, 8, 8, 1, 0)]"


def _choice(hash_: str, ratio: float, verdict: Verdict) -> MeasuredChoice:
    ms = 2.0 * ratio
    return MeasuredChoice(
        hash_, ms, ms * 0.99, ms * 1.01, 0.02, 40, ratio, ratio * 0.99, ratio * 1.01, verdict
    )


def _measurement(*choices: MeasuredChoice, when: float = 1.0) -> Measurement:
    return Measurement("mm", KEY, "highest", when, choices, system_hash="aa")


def _tuning(*times: float) -> Tuning:
    choices = tuple(Choice(hash=f"c{at}-x", ms=ms) for at, ms in enumerate(times))
    return Tuning("mm", inputs_key=KEY, precision="highest", choices=choices, session="s")


def _with(tuning: Tuning, *choices: MeasuredChoice) -> Tuning:
    return replace(tuning, measured=_measurement(*choices))


def test_a_measurement_survives_its_line_in_the_event_log() -> None:
    event = TuningMeasured(
        replace(
            _measurement(_choice("c0-x", 1.0, "faster"), _choice("c1-x", 1.1, "slower")),
            failed=(Choice(hash="c2-x", failed=True, reason="it crashed"),),
            trouble=("drift",),
        )
    )
    assert decode(encode(event)) == event


def test_older_lines_tell_of_flushed_caches_and_all_others_are_hot() -> None:
    line = encode(TuningMeasured(_measurement(_choice("c0-x", 1.0, "faster"))))
    for told, read in (("true", "cold"), ("false", "hot"), ('"x"', "hot")):
        older = line.replace('"caches":"hot"', f'"flushed":{told}')
        assert older != line
        event = decode(older)
        assert isinstance(event, TuningMeasured) and event.measurement.caches == read
    event = decode(line.replace('"caches":"hot",', ""))
    assert isinstance(event, TuningMeasured) and event.measurement.caches == "hot"


@pytest.mark.parametrize(("device", "counts"), [("cuda", "cold"), ("cpu", "hot")])
def test_on_a_gpu_cold_measurements_count_and_elsewhere_those_like_the_latest(
    device: str, counts: str
) -> None:
    key = KEY.replace("cpu", device)
    model = Model()
    model.apply([Seen("cache#1", replace(_tuning(1.0, 1.2), inputs_key=key))])
    told = replace(_measurement(_choice("c0-x", 1.0, "faster")), inputs=key)
    for when, caches in enumerate(("cold", "cold", "hot", "hot")):
        seen = replace(told, caches=caches, when=float(when))  # type: ignore[arg-type]
        model.apply([MeasurementSeen(f"m{when}", seen)])
    measured = model.rows()[0].tuning.measured
    assert measured is not None
    assert (measured.caches, measured.when) == (counts, 1.0 if counts == "cold" else 3.0)
    for when in (2, 3) if counts == "hot" else (0, 1):
        model.apply([Gone(f"m{when}")])
    measured = model.rows()[0].tuning.measured
    assert measured is not None and measured.caches != counts


def test_what_a_log_says_of_a_measurement_cannot_reach_the_terminal() -> None:
    bad = replace(
        _measurement(_choice("c0-x", 1.0, "faster")),
        trouble=("\x1b[31mred",),
        failed=(Choice(name="a\x07b", failed=True, reason="\x1b]0;t\x07"),),
    )
    log = EventLog("log")
    data = "\n".join([encode(SessionStarted(Session("s"))), encode(TuningMeasured(bad)), ""])
    found = [r for r in log.feed(data.encode()) if isinstance(r, MeasurementSeen)]
    assert len(found) == 1
    assert "\x1b" not in repr(found[0]).encode().decode("unicode_escape")
    assert "\x07" not in repr(found[0]).encode().decode("unicode_escape")


def test_the_latest_measurement_of_a_key_belongs_to_its_tuning_until_its_source_is_gone() -> None:
    model = Model()
    model.apply([Seen("cache#1", _tuning(1.0, 1.2))])
    old = _measurement(_choice("c0-x", 1.0, "faster"), when=1.0)
    new = _measurement(_choice("c1-x", 1.0, "faster"), _choice("c0-x", 1.1, "slower"), when=2.0)
    changes = model.apply([MeasurementSeen("b", new), MeasurementSeen("a", old)])
    assert changes.changed == {"cache#1"}
    assert model.rows()[0].tuning.measured == new
    model.apply([Gone("b")])
    assert model.rows()[0].tuning.measured == old
    other = replace(new, precision="high", when=3.0)
    model.apply([MeasurementSeen("c", other)])
    assert model.rows()[0].tuning.measured == old


def test_a_row_of_a_cache_file_takes_measurements_of_its_own_system_alone() -> None:
    here = replace(_tuning(1.0, 1.2), session=None, sources=("/c/cache/aa",))
    there = replace(here, sources=("/c/cache/bb",))
    model = Model()
    told = _measurement(_choice("c0-x", 1.0, "faster"))
    model.apply([Seen("/c/cache/aa#1", here), Seen("/c/cache/bb#1", there)])
    model.apply([MeasurementSeen("m", told)])
    by_file = {row.tuning.sources[0]: row.tuning for row in model.rows()}
    assert by_file["/c/cache/aa"].measured == told
    assert by_file["/c/cache/bb"].measured is None
    assert model.measurements(there) == ()
    nowhere = replace(there, sources=("/c/copied.json",))
    assert model.measurements(nowhere) == (told,)  # no source tells its system


@pytest.mark.parametrize(
    ("tuning", "expected"),
    [
        (_tuning(1.0), None),
        (_tuning(1.3, 1.31), "tied"),
        (_tuning(1.0, 1.10), "ahead"),  # by times that were taken once
        (
            _with(
                _tuning(1.0, 1.01), _choice("c0-x", 1.0, "faster"), _choice("c1-x", 1.1, "slower")
            ),
            "clear",
        ),
        (
            _with(_tuning(1.0, 1.10), _choice("c0-x", 1.0, "tied"), _choice("c1-x", 1.0, "tied")),
            "tied",
        ),
        (
            _with(
                _tuning(1.0, 1.10), _choice("c1-x", 1.0, "faster"), _choice("c0-x", 1.1, "slower")
            ),
            "slower",
        ),
        (
            _with(
                _tuning(1.0, 1.1), _choice("c0-x", 1.0, "unclear"), _choice("c1-x", 1, "unclear")
            ),
            "unclear",
        ),
        (
            _with(
                _tuning(1.0, 1.01, 1.2),
                _choice("c0-x", 1.0, "faster"),
                _choice("c2-x", 1.2, "slower"),
            ),
            "tied",  # the second was not measured
        ),
    ],
)
def test_the_winner_stands_as_it_was_measured(tuning: Tuning, expected: str | None) -> None:
    assert stats.standing(tuning) == expected
    assert stats.wins_clearly(tuning) == (expected == "clear")


def test_the_lead_is_the_measured_one_and_negative_where_the_second_is_faster() -> None:
    beaten = _with(
        _tuning(1.0, 1.10), _choice("c1-x", 1.0, "faster"), _choice("c0-x", 1.25, "slower")
    )
    assert stats.lead(beaten) == pytest.approx(-0.2)
    assert stats.lead(_tuning(1.0, 1.10)) == pytest.approx(0.1)
    near = _with(
        _tuning(1.0, 1.05, 1.10),
        _choice("c0-x", 1.0, "faster"),
        _choice("c2-x", 1.03, "slower"),
        _choice("c1-x", 1.08, "slower"),
    )
    assert stats.lead(near) == pytest.approx(0.03)


def test_a_pin_is_warned_of_only_where_the_choice_is_known_to_be_slower() -> None:
    single = _tuning(1.0, 1.01, 1.5)
    assert [pin_warning(single, choice) is None for choice in single.choices] == [True, True, False]
    assert "50.0 % slower than c0-x" in str(pin_warning(single, single.choices[2]))
    told = _with(
        single,
        _choice("c2-x", 1.0, "unclear"),
        _choice("c1-x", 1.3, "slower"),
        _choice("c0-x", 1.0, "unclear"),
    )
    warnings = [pin_warning(told, choice) for choice in told.choices]
    assert warnings[0] is None and warnings[2] is None
    assert "slower than c2-x by 28.7 % to 31.3 %" in str(warnings[1])
