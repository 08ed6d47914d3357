"""How it is told what choices compute."""

from __future__ import annotations

import math

import pytest

from backend.model.choice import MeasuredChoice, Measurement, Output
from backend.model.tuning import Tuning
from backend.wire.codec import dumps, loads, read, to_json
from rocm_tui.json_output import builtins_of
from rocm_tui.render.measured import (
    MeasurementJson,
    OutputJson,
    measured_text,
    output_sentences,
    output_text,
    sentences,
)


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (None, ""),
        (Output("A", 10, 10, 64), "A"),
        (Output("B", 10, 10, 4096, 1768, 2.9), "B ✗ 1,768"),
        (Output("B", 10, 4, 4096, 0, 0.2), "B ~"),
        (Output("C", 10, 10), "C no bound"),
        (Output("C", 2, 1, 9, 3, math.inf), "C ✗ 3 ~"),
    ],
)
def test_a_cell_says_group_errors_and_whether_it_is_always_the_same(
    output: Output | None, text: str
) -> None:
    assert output_text(output) == text
    noteworthy = output is not None and bool(output.beyond or not output.steady)
    assert bool(output_sentences("mm", output)) is noteworthy


def test_a_measurement_keeps_and_tells_what_choices_computed() -> None:
    wrong = Output("B", 10, 7, 4096, 768, 2.874)
    told = tuple(
        MeasuredChoice(f"{n}-1", 1.0, 1.0, 1.0, 0.0, 9, 1.0, 1.0, 1.0, "tied", n, output)
        for n, output in {"mm": Output("A", 10, 10, 4096), "cpp": wrong}.items()
    )
    found = Measurement("mm", "[]", "highest", 1.0, told)
    assert read(Measurement, loads(dumps(to_json(found)))) == found
    lines = measured_text(Tuning("mm"), found).splitlines()
    assert "output" in lines[0] and " B ✗ 768 ~ " in lines[2]
    told_of = [line for line in sentences(Tuning("mm"), found, "1") if line.startswith("cpp")]
    assert told_of == [
        "cpp: 768 of 4,096 elements are further from the float64 result than rounding explains, "
        "the worst by 2.9× what is allowed",
        "cpp is not deterministic: 3 of 10 runs on the same inputs gave other bits than the first",
    ]
    output = builtins_of(MeasurementJson.of(found))["choices"][1]["output"]
    assert output["deterministic"] is False and output["beyond"] == 768
    assert builtins_of(OutputJson.of(Output("A", 2, 2, 1, 1, math.inf))) == {
        "group": "A", "runs": 2, "same": 2, "compared": 1, "beyond": 1, "excess": None,
        "deterministic": True, "rounding": "beyond",
    }  # fmt: skip
    bounds = {
        output: builtins_of(OutputJson.of(output))
        for output in (Output("A", 2, 2), Output("A", 2, 2, 1))
    }
    assert [told["rounding"] for told in bounds.values() if told] == ["no bound", "within"]
