"""Rows that look alike are told apart by device, layout, rank and source, and by these alone where
they differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backend.model.choice import Choice
from backend.model.problem import Shape
from backend.model.session import Session
from backend.model.tuning import Tuning
from rocm_tui.ingest.records import Record, Seen, SessionSeen
from rocm_tui.json_output import builtins_of
from rocm_tui.render.tuning_json import TuningJson
from rocm_tui.render.tunings import cells, tunings_text
from rocm_tui.session.grouping import differing
from rocm_tui.session.model import Model, Row
from rocm_tui.session.stats import layout_of

ROWS, COLUMNS = (128, 1), (1, 64)
"""Strides of a 64 by 128 matrix."""


def mm(left: Shape, right: Shape, op: str = "mm") -> Tuning:
    shapes = ((64, 64), (64, 128)) if op == "mm" else ((64, 64), (128, 64))
    return Tuning(
        op=op, shapes=shapes, strides=(left, right), dtypes=("torch.float32",) * 2, device="cuda",
        choices=(Choice(name="triton_mm_1", ms=1.0), Choice(name="mm", ms=1.2)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("tuning", "layout"),
    [
        (mm((64, 1), (128, 1)), "NN"),
        (mm((64, 1), (1, 64)), "NT"),
        (mm((1, 64), (128, 1)), "TN"),
        (mm((1, 64), (1, 64)), "TT"),
        (mm((64, 1), (136, 1)), "NN+"),
        (mm((64, 1), (1, 96)), "NT+"),
        (mm((128, 2), (128, 1)), ""),
        (replace(mm((64, 1), (128, 1)), strides=()), ""),
        (replace(mm((64, 1), (128, 1)), op="flex_attention"), ""),
    ],
)
def test_layout_of_a_product(tuning: Tuning, layout: str) -> None:
    assert layout_of(tuning) == layout


def test_the_batches_of_a_product_may_lie_apart() -> None:
    shapes = ((8, 64, 32), (8, 32, 64))
    close, woven = ((2048, 32, 1), (2048, 64, 1)), ((32, 256, 1), (2048, 64, 1))
    assert layout_of(Tuning(op="bmm", shapes=shapes, strides=close)) == "NN"
    assert layout_of(Tuning(op="bmm", shapes=shapes, strides=woven)) == "NN+"
    ones = Tuning(op="mm", shapes=((1, 64), (64, 1)), strides=((7, 1), (1, 9)))
    assert layout_of(ones) == "NN", "strides of single rows and columns say nothing"


def test_a_weight_is_given_the_other_way_round() -> None:
    shapes = ((4, 64), (9, 1), (128, 64))
    frozen = Tuning(op="packed_linear", shapes=shapes, strides=((64, 1), (1, 0), (64, 1)))
    assert layout_of(frozen) == "NT"
    packed = Tuning(op="linear_unary", shapes=shapes, strides=((64, 1), (1, 0), (64, 1)))
    assert layout_of(packed) == ""


def test_the_image_of_a_convolution_has_its_channels_first_or_last() -> None:
    shapes = ((2, 8, 14, 14), (16, 8, 3, 3))
    first, last = (1568, 196, 14, 1), (1568, 1, 112, 8)
    weight = (72, 9, 3, 1)
    for op in ("convolution", "aten.convolution"):
        told = [layout_of(Tuning(op=op, shapes=shapes, strides=(s, weight))) for s in (first, last)]
        assert told == (["NCHW", "NHWC"] if op == "convolution" else ["", ""])


def rows(*records: Record) -> list[Row]:
    model = Model()
    model.apply(records, 0.0)
    return sorted(model.rows(), key=lambda row: row.seq)


def test_rows_that_differ_in_strides_alone_are_told_apart() -> None:
    one, two = mm((64, 1), (128, 1)), mm((64, 1), (1, 64))
    known = rows(Seen("a.log#1", one), Seen("a.log#2", two))
    assert differing(known) == ("layout",)
    heading, *lines = tunings_text(known).splitlines()
    assert "layout" in heading and "device" not in heading and "source" not in heading
    assert ["NN" in line.split() for line in lines] == [True, False]
    assert [builtins_of(TuningJson.of(row))["layout"] for row in known] == ["NN", "NT"]
    heading, *_ = tunings_text(known[:1]).splitlines()
    assert "layout" not in heading


def test_a_gpu_is_named_by_its_architecture() -> None:
    records: list[Record] = []
    for at, arch in enumerate(("gfx942", "gfx90a")):
        id_ = f"node-{at + 1}-1795370265-9cec487{at}"
        records.append(SessionSeen(Session(id=id_, device="AMD Instinct", arch=arch, rank=at)))
        tuning = replace(mm((64, 1), (128, 1)), session=id_, rank=at, sources=(f"{id_}.jsonl",))
        records.append(Seen(f"{id_}.jsonl#1", tuning))
    known = rows(*records)
    assert [row.device for row in known] == ["gfx942", "gfx90a"]
    assert differing(known) == ("device", "rank", "source")
    heading, first, second = tunings_text(known).splitlines()
    assert heading.split()[4:8] == ["device", "rank", "source", "choices"]
    assert "gfx942 0 node-1 2" in " ".join(first.split())
    assert "gfx90a 1 node-2 2" in " ".join(second.split())
    told = cells(known[0], 0.0, {"node-1-1795370265-9cec4870": "one"})
    assert told["source"][0] == "one" and told["device"][0] == "gfx942"
