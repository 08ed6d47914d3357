"""Entries of tables beside tunings of Inductor: shown with them, never one with them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from backend.model.choice import Choice
from backend.model.tuning import Tuning
from backend.tables.registry import TUNERS
from rocm_tui.actions.pin import pinnable
from rocm_tui.cli.entry import main
from rocm_tui.compare.comparison import inductors, whole
from rocm_tui.errors import NotPinnable
from rocm_tui.ingest.follow.sources import read_sources
from rocm_tui.ingest.records import Gone, Seen
from rocm_tui.jobs.tune import problem_of, words_of
from rocm_tui.render.detail import show_text
from rocm_tui.session.attachments import Tables
from rocm_tui.session.model import Model, Row
from rocm_tui.session.query.fields import BY_NAME, Known
from rocm_tui.session.refusals import EDITED, why_not_measured, why_not_tuned

TABLE = """Validator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-
GemmTunableOp_Half_TN,tn_320_64_128,Gemm_Hipblaslt_12683,0.004
GemmTunableOp_Half_TN,tn_320_64_128,Default,0.006
GemmTunableOp_BFloat16_TN,tn_320_64_128,Default,0.005
GemmTunableOp_Half_NN,nn_320_64_128,Default,0.007
GemmAndBiasTunableOp_float_TN,tn_320_64_128,Default,0.008
ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_Half_TN,tn_8_8_8_ld_8_8_8,Default,0.5
"""
UNTUNED = "GemmTunableOp_Half_TN,tn_320_64_128_ld_128_128_320\n"
FIRST = "('cuda', 'torch.float16', 64, 128, 128, 1, 0)"
SECOND = "('cuda', 'torch.float16', 128, 320, 1, 128, 0)"
HALF, BIAS = "GemmTunableOp_Half_TN,tn_320_64_128", "GemmAndBiasTunableOp_float_TN,tn_320_64_128"
CHOICES = Choice("mm", "mm-a", 0.003), Choice("triton_mm_1", "triton_mm-b", 0.0045)
MM = Tuning(
    "mm",
    ((64, 128), (128, 320)),
    ((128, 1), (1, 128)),
    ("torch.float16",) * 2,
    "cuda",
    "highest",
    f"[{FIRST}, {SECOND}]",
    choices=CHOICES,
    num_choices=2,
)


def table(tmp_path: Path) -> str:
    (tmp_path / "results0.csv").write_text(TABLE)
    return str(tmp_path / "results0.csv")


def of_inductor(model: Model) -> Row:
    (row,) = (row for row in model.rows() if row.tuning.entry is None)
    return row


@pytest.mark.parametrize("table_first", [True, False])
def test_an_entry_stands_beside_a_tuning_of_its_product(tmp_path: Path, table_first: bool) -> None:
    model, path = Model(), table(tmp_path)
    both = [read_sources([path]), [Seen("s#1", MM)]]
    for records in both if table_first else both[::-1]:
        model.apply(records)
    assert len(model.rows()) == 7
    row = of_inductor(model)
    assert [(e.choices[0].name, e.entry and e.entry.line) for e in row.beside] == [
        ("Gemm_Hipblaslt_12683", 2),
        ("Default", 3),
    ]
    assert [choice.ms for choice in row.tuning.choices] == [0.003, 0.0045]
    text = show_text(row)
    assert "TunableOp  Gemm_Hipblaslt_12683  4.0 µs  gfx942  results0.csv:2" in text
    assert "not ranked with the choices" in text
    changes = model.apply([Gone(path)])
    assert row.key in changes.changed and not of_inductor(model).beside


SCALED = (
    "ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_BFloat16_TN,"
    "tn_320_64_128_ld_128_128_320_rw_{}_bias_None,Default,0.5\n"
)
HASH = "_scaled_mm-out_dtype=torch.bfloat16-use_fast_accum=False-csk"


@pytest.mark.parametrize("table_first", [True, False])
def test_products_with_scales_stand_beside_each_other(tmp_path: Path, table_first: bool) -> None:
    """However many dimensions a scale of one number has, and whatever stride one of rows."""
    (tmp_path / "results0.csv").write_text("".join(SCALED.format(rows) for rows in (0, 1)))
    scales = (
        (((), ()), ((), ())),
        (((1, 1), (1,)), ((1, 1), (1,))),
        (((64, 1), (1, 320)), ((1, 1), (1, 1))),
        (((64, 1), (1, 320)), ((1, 1), (320, 1))),
        (((64, 4), (4, 320)), ((4, 1), (320, 1))),
    )
    tunings = [
        Tuning(
            "scaled_mm", (*MM.shapes, *shapes), (*MM.strides, *strides),
            (*("torch.float8_e4m3fn",) * 2, *("torch.float32",) * 2), "cuda", "highest", f"[{at}]",
            choices=(Choice("_scaled_mm", f"{HASH}{at}", 0.1),),
        )
        for at, (shapes, strides) in enumerate(scales)
    ]  # fmt: skip
    records = [Seen(f"s#{at}", tuning) for at, tuning in enumerate(tunings)]
    model, read = Model(), read_sources([str(tmp_path / "results0.csv")])
    for some in (read, records) if table_first else (records, read):
        model.apply(some)
    of = {row.tuning: row.beside for row in model.rows() if row.tuning.entry is None}
    assert [[one.entry.line for one in of[each] if one.entry] for each in tunings] == [
        *([1], [1], [2], [2], [])
    ]


def test_what_is_no_product_of_the_other(tmp_path: Path) -> None:
    """Other types, other layouts, a bias."""
    model = Model()
    model.apply(read_sources([table(tmp_path)]))
    for at, tuning in enumerate(
        (
            Tuning("mm", MM.shapes, ((128, 1), (320, 1)), ("torch.float32",) * 2, "cuda"),
            Tuning("mm", MM.shapes, (), MM.dtypes, "cuda"),
            Tuning("mm", ((64, 128), (128, 321)), MM.strides, MM.dtypes, "cuda"),
        )
    ):
        model.apply([Seen(f"s#{at}", tuning)])
    assert not any(row.beside for row in model.rows())
    addmm = Tuning(
        "addmm",
        ((64, 320), *MM.shapes),
        ((0, 1), *MM.strides),
        ("torch.float32",) * 3,
        "cuda",
        "highest",
    )
    model.apply([Seen("s#9", addmm)])
    (row,) = (row for row in model.rows() if row.beside)
    assert row.tuning == addmm and row.beside[0].inputs_key == (
        "GemmAndBiasTunableOp_float_TN,tn_320_64_128"
    )


def test_entries_are_no_tunings_of_inductor(tmp_path: Path) -> None:
    model = Model()
    model.apply([Seen("s#1", MM), *read_sources([table(tmp_path)])])
    assert [row.tuning.entry for row in inductors("", model).rows] == [None]
    assert len(whole("", model).rows) == 7
    row = next(row for row in model.rows() if row.tuning.inputs_key == BIAS)
    assert (row.device, row.pin, row.tuning.key) == ("gfx942", None, None)
    with pytest.raises(
        NotPinnable, match=r"entry of a table of tunableop; `rocm-tui pin .*:6 SOLUTION`"
    ):
        pinnable(row, "Default", {})
    assert "(t) tunes the same product" in (why_not_measured(row.tuning, row.tuning.choices) or "")
    words = words_of(problem_of(row.tuning))
    assert why_not_tuned(row.tuning) is None and words["op"] == "addmm" and "inputs" not in words
    scaled = next(row for row in model.rows() if row.tuning.op.startswith("Scaled"))
    assert why_not_tuned(scaled.tuning) == (
        f"{scaled.id} is no product that Inductor knows: an fp8 product without its scales, as an "
        "older PyTorch recorded it; PYTORCH_TUNABLEOP_RECORD_UNTUNED=1 with a newer PyTorch "
        "records it with them"
    )
    assert BY_NAME["tuner"].read(row, Known()) == ("tunableop",)
    assert BY_NAME["device"].read(row, Known())[0] == "gfx942"


def test_two_entries_with_one_key_are_two_rows(tmp_path: Path) -> None:
    model = Model()
    model.apply(read_sources([table(tmp_path)]))
    twice = [row for row in model.rows() if row.tuning.inputs_key == HALF]
    assert sorted(row.occurrence for row in twice) == [1, 2] and len({row.id for row in twice}) == 1


def test_commands_list_and_show_entries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path)
    untuned = tmp_path / "tunableop_untuned0.csv"
    untuned.write_text(UNTUNED)
    assert main(["ls", "--json", path, str(untuned)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["tunings"]) == 7 and not told["problems"]
    asked = next(t for t in told["tunings"] if t["sources"] == [str(untuned)])
    assert asked["choices"] == [] and asked["entry"] == {
        "tuner": "tunableop",
        "line": 1,
        "device": None,
    }
    main(["show", asked["id"], "--from", str(untuned), "--cache-dir", str(tmp_path / "c")])
    out = capsys.readouterr().out
    assert "requested, not tuned" in out and "64×128 · 128×320" in out
    main(["ls", "--filter", "tuner:tunableop op:addmm", path])
    assert "gfx942" in (out := capsys.readouterr().out) and out.count("addmm") == 1


def test_two_tables_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path)
    newer = tmp_path / "newer.csv"
    newer.write_text(TABLE.replace("Default,0.005", "Gemm_Rocblas_7,0.0025"))
    main(["compare", path, str(newer), "--cache-dir", str(tmp_path / "c")])
    out = capsys.readouterr().out
    assert "Gemm_Rocblas_7" in out and "Default" in out


def test_the_tuners_whose_tables_are_edited_are_known() -> None:
    assert {tuner.name for tuner in TUNERS if tuner.editing is not None} == EDITED


def test_a_layer_with_another_padding_is_not_the_same_layer() -> None:
    shapes, strides = ((1, 8, 16, 16), (8, 8, 3, 3)), ((2048, 256, 16, 1), (72, 9, 3, 1))
    dtypes = ("torch.float32",) * 2
    layer = Tuning("convolution", shapes, strides, dtypes, options=(("padding", (1, 1)),))
    other = replace(layer, options=(("padding", (0, 0)),))
    tables = Tables()
    tables.add(layer)
    tables.add(other)
    assert tables.of(layer) == (layer,) and tables.of(other) == (other,)
    assert set(tables.of(replace(layer, options=()))) == {layer, other}  # as far as it is seen
