"""MIOpen's text databases: find-dbs of both forms, perf-dbs, and what their convolutions are."""

from __future__ import annotations

import pytest

from backend.model.choice import Choice
from backend.model.tuning import Tuning
from backend.tables.miopen import device_of
from backend.tables.model import NOT_ITS_FORM, TORN, NotAProblem, Table, TableDevice
from backend.tables.registry import parse, problem_of_entry
from rocm_tui.compare.tables import SameKey
from rocm_tui.ingest.formats.registry import format_named, sniff
from rocm_tui.ingest.records import Seen
from rocm_tui.render.detail import show_text
from rocm_tui.render.entries import entry_lines, solution_text
from rocm_tui.session.model import Model, Row
from rocm_tui.tables.collection import TableRow

NEW = (
    b"64-28-30-3x3-96-14-15-8-1x1-2x2-1x1-0-NCHW-FP16-F=ConvB:0.05,1024,miopenConvolutionFwdAlgoDirect"
    b";GemmA:0.02,0,miopenConvolutionFwdAlgoGEMM\n"
)
OLD = (
    b"64-28-30-3x3-96-28-30-8-1x1-1x1-1x1-0-NHWC-NHWC-NHWC-FP32-F_g2="
    b"miopenConvolutionFwdAlgoGEMM:GemmA,0.5,0,miopenConvolutionFwdAlgoGEMM,not used\n"
)
PERF = b"64-28-30-3x3-96-28-30-8-1x1-1x1-1x1-0-NCHW-BF16-W=ConvAsm:1,2,16;ConvOcl:4,4\n"
DEEP = (
    b"4-5-6-7-1x3x3-8-5-6-7-2-0x1x1-1x1x1-1x1x1-0-NCDHW-FP32-F=ConvB:0.1,0,miopenConvolutionFwd\n"
)


def table(data: bytes, name: str = "gfx942130.HIP.fdb.txt") -> Table:
    found = parse(data, name)
    assert found is not None and found.tuner == "miopen"
    return found


def test_solvers_of_a_find_db() -> None:
    found = table(NEW + OLD + b"\n" + PERF + b"64-28=nothing\n")
    new, old = found.entries
    assert (new.op, new.solution, new.ms) == ("convolution", "GemmA", 0.02)
    assert new.others == (("ConvB", 0.05),) and new.device == TableDevice(
        "gfx942", 304, "gfx942130"
    )
    assert (old.solution, old.ms, old.others) == ("GemmA", 0.5, ())
    assert [(fault.line, fault.what) for fault in found.problems] == [
        (4, TORN), (5, NOT_ITS_FORM),
    ]  # fmt: skip
    assert found.rewritten({each: found.text(each) for each in found.entries}) == found.data
    (perf,) = table(PERF, "gfx942130.db.txt").entries
    assert (perf.solution, perf.ms, perf.extra[1]) == ("ConvAsm", None, ("ConvOcl", "4,4"))


@pytest.mark.parametrize("cut", range(NEW.index(b"=") + 1, len(NEW) - 1, 3))
def test_a_find_db_that_was_cut_has_no_invented_solver(cut: int) -> None:
    found = parse(OLD.replace(b"F_g2", b"F") + NEW[:cut], "find.txt")
    assert found is not None and found.entries[0].ms == 0.5
    assert all(
        each.ms is not None and each.solution in ("ConvB", "GemmA") for each in found.entries
    )
    assert len(found.entries) + len(found.problems) == 2


def test_a_time_that_no_kernel_takes_is_none() -> None:
    (entry,) = table(NEW.replace(b"0.02", b"0.0").replace(b"0.05", b"1e300")).entries
    assert entry.ms is None and [ms for _, ms in entry.others] == [None]


def test_convolutions_in_torchs_words() -> None:
    found = table(NEW + OLD + DEEP)
    new, old, deep = found.entries
    (perf,) = table(PERF, "gfx942130.db.txt").entries
    plain, last = problem_of_entry(found, new), problem_of_entry(found, old)
    assert plain.shapes == ((8, 64, 28, 30), (96, 64, 3, 3)) and plain.dtypes[0] == "torch.float16"
    assert plain.strides[0] == (64 * 28 * 30, 28 * 30, 30, 1)
    assert dict(plain.options)["stride"] == (2, 2) and dict(plain.options)["groups"] == (1,)
    assert last.shapes[1] == (96, 32, 3, 3) and last.strides[0] == (64 * 28 * 30, 1, 30 * 64, 64)
    assert problem_of_entry(found, deep).shapes == ((2, 4, 5, 6, 7), (8, 4, 1, 3, 3))
    weight = problem_of_entry(found, perf)  # its first sizes are those of the gradient
    assert weight.op == "convolution_bwd_weight"
    assert weight.shapes == ((8, 96, 28, 30), (8, 64, 28, 30))
    assert dict(weight.options)["w_shape"] == (64, 96, 3, 3)


PARTS = "2x64x14x15x1x3x3x1x96x8x1x1x0x{stride}x{stride}x0x1x1x0x0x{groups}xNCHWxFP16x{direction}"


def key(direction: str, stride: int = 1, groups: int = 1) -> bytes:
    told = PARTS.format(direction=direction, stride=stride, groups=groups)
    return told.encode() + b"=ConvA:1,2;ConvB:256\n"


def test_perf_dbs_name_each_size() -> None:
    """As they are since 2024: the columns of SQLite, one behind the other."""
    found = table(key("F", 2, 2) + key("B", 1, 2) + key("B", 2) + key("W"), "gfx942130.db.txt")
    forward, input, open_, weight = found.entries
    assert sniff(found.data) == "miopen" and not found.problems
    assert forward.op == "convolution" and forward.others == (("ConvB", None),)
    assert problem_of_entry(found, forward).shapes == ((8, 64, 14, 15), (96, 32, 3, 3))
    back = problem_of_entry(found, input)
    assert back.shapes == ((8, 64, 14, 15), (64, 48, 3, 3))
    assert dict(back.options)["x_shape"] == (8, 96, 14, 15)
    assert problem_of_entry(found, weight).shapes == ((8, 96, 14, 15), (8, 64, 14, 15))
    with pytest.raises(NotAProblem, match="not recorded"):
        problem_of_entry(found, open_)


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("gfx906_60.HIP.fdb.txt", TableDevice("gfx906", 60, "gfx906_60")),
        ("gfx90a68.HIP.2_16_0.ufdb.txt", TableDevice("gfx90a", 104, "gfx90a68")),
        ("gfx1030_36.udb.txt", TableDevice("gfx1030", 36, "gfx1030_36")),
        ("gfx942130_1.1.0.udb", TableDevice("gfx942", 304, "gfx942130")),
        ("gfx906_60_1.1.0.udb", TableDevice("gfx906", 60, "gfx906_60")),
        ("gfx1100.ufdb.txt", TableDevice("gfx1100", None, "gfx1100")),
        ("find.txt", TableDevice()),
    ],
)
def test_the_name_tells_the_device(name: str, device: TableDevice) -> None:
    assert device_of(name) == device


def test_a_find_db_stands_beside_inductors_convolution() -> None:
    format = format_named(sniff(NEW))
    assert format is not None and format.stream is not None
    reader, model = format.stream("/db/gfx942130.HIP.ufdb.txt"), Model()
    model.apply([*reader.feed(NEW), *reader.close()])
    (entry,) = (row.tuning for row in model.rows())
    assert [(choice.name, choice.ms) for choice in entry.choices] == [
        ("GemmA", 0.02),
        ("ConvB", 0.05),
    ]
    for at, stride in enumerate(((2, 2), (1, 1))):
        told = (("padding", (1, 1)), ("stride", stride))
        mine = Tuning(
            "convolution", entry.shapes, entry.strides, entry.dtypes, "cuda", "highest", f"[{at}]",
            choices=(Choice("convolution", f"convolution-{at}", 0.03),), options=told,
        )  # fmt: skip
        model.apply([Seen(f"s#{at}", mine)])
    rows = [row for row in model.rows() if row.tuning.entry is None]
    (beside,) = (row for row in rows if row.beside)
    assert dict(beside.tuning.options)["stride"] == (2, 2) and len(rows) == 2
    text = show_text(beside)
    assert "MIOpen  GemmA  20.0 µs  gfx942:304  gfx942130.HIP.ufdb.txt:1" in text


def test_a_perf_db_stands_beside_a_backward_convolution() -> None:
    """As PyTorch 2.13 tunes it: the image and the gradient, and the sizes of the weight."""
    format, model = format_named("miopen"), Model()
    assert format is not None and format.stream is not None
    model.apply(format.stream("/db/gfx942130.db.txt").feed(key("W") + key("F")))
    told = (("dilation", (1, 1)), ("stride", (1, 1)), ("w_shape", (64, 96, 3, 3)))
    for at, options in enumerate((told, (*told[:2], ("w_shape", (64, 96, 1, 1))))):
        mine = Tuning(
            "convolution_bwd_weight",
            ((8, 96, 14, 15), (8, 64, 14, 15)),
            ((96 * 14 * 15, 14 * 15, 15, 1), (64 * 14 * 15, 14 * 15, 15, 1)),
            ("torch.float16",) * 2, "cuda", "highest", f"[{at}]", options=options,
        )  # fmt: skip
        model.apply([Seen(f"s#{at}", mine)])
    (row,) = (row for row in model.rows() if row.beside)
    assert dict(row.tuning.options)["w_shape"] == (64, 96, 3, 3)
    assert [choice.name for choice in row.beside[0].choices] == ["ConvA", "ConvB"]


def test_of_several_solvers_without_times_none_is_said_to_be_taken() -> None:
    both = table(b"2x5=ConvAsm1x1U:1,2,3;ConvOclDirectFwd:7\n", "gfx942130.udb.txt")
    one = TableRow(both, both.entries[0])
    assert solution_text(one) == "ConvAsm1x1U or ConvOclDirectFwd"
    told = ["".join(text for text, _ in line) for line in entry_lines(one, 120, 20)]
    assert " 2 solutions; which one is taken is unknown" in told

    def row(values: bytes) -> Row:
        format, model = format_named("miopen"), Model()
        assert format is not None and format.stream is not None
        model.apply(format.stream("/db/gfx942130.udb.txt").feed(b"2x5=" + values + b"\n"))
        (found,) = model.rows()
        return found

    mine = row(b"ConvAsm1x1U:1,2,3;ConvOclDirectFwd:7")
    assert SameKey(mine, row(b"ConvOclDirectFwd:7;ConvAsm1x1U:1,2,3")).same_solution
    assert not SameKey(mine, row(b"ConvAsm1x1U:1,2,3;ConvOclDirectFwd:8")).same_solution
