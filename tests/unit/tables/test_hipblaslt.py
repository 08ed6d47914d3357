"""hipBLASLt's tuning files, as written to a file and as printed."""

from __future__ import annotations

import pytest

from backend.tables.model import NotAProblem, Table
from backend.tables.registry import parse, problem_of_entry
from rocm_tui.ingest.formats.registry import format_named, sniff
from rocm_tui.ingest.records import Seen

HEAD = (
    b"transA,transB,grouped_gemm,batch_count,m,n,k,alpha,lda,stride_a,beta,ldb,stride_b,ldc,stride_c,"
    b"ldd,stride_d,a_type,b_type,c_type,d_type,compute_type,scaleA,scaleB,scaleC,scaleD,amaxD,"
    b"activation_type,bias_vector,bias_type,rotating_buffer,hipblaslt-Gflops,hipblaslt-GB/s,us,"
    b"soulution_index"
)
ROW = (
    b"T,N,0,1,96,16,64,1,64,6144,0,64,1024,96,1536,96,1536,bf16_r,bf16_r,bf16_r,bf16_r,f32_r,0,0,0,0,"
    b"0,none,0,f32_r,512,100,3,12.5,56537"
)
FILE = b"Git Version: ab12cd-dirty\n" + HEAD + b"\n" + ROW + b"\n"


def table(data: bytes) -> Table:
    found = parse(data, "tuning.txt")
    assert found is not None and found.tuner == "hipblaslt" and sniff(data) == "hipblaslt"
    return found


def test_a_tuning_file() -> None:
    scaled = ROW.replace(b",64,1024,96", b",64,1024,97").replace(b"f32_r,0,0", b"f32_r,1,0")
    found = table(FILE + scaled + b"\n" + ROW[:-9] + b"\n")
    assert found.facts == (("Git Version", "ab12cd-dirty"),)
    first, second = found.entries
    assert (first.line, first.solution, first.ms) == (3, "56537", 0.0125)
    assert first.key[:4] == (("transA", "T"), ("transB", "N"), ("batch_count", "1"), ("m", "96"))
    product = problem_of_entry(found, first)
    assert product.op == "mm" and product.shapes == ((16, 64), (64, 96))
    assert product.strides == ((64, 1), (1, 64)) and product.dtypes == ("torch.bfloat16",) * 2
    with pytest.raises(NotAProblem, match="with scales"):
        problem_of_entry(found, second)
    assert [fault.line for fault in found.problems] == [5]
    assert found.rewritten({each: found.text(each) for each in found.entries}) == found.data


def test_newer_files_name_the_solution() -> None:
    found = table(
        FILE.replace(b"index\n", b"index,solution_name\n").replace(b"537\n", b"537,Cijk_A\n")
    )
    (entry,) = found.entries
    assert entry.solution == "Cijk_A" and ("soulution_index", "56537") in entry.extra


def test_newer_files_name_the_device() -> None:
    newer = FILE.replace(b"soulution_index\n", b"solution_index,gcnArchName,CUs\n")
    (entry,) = table(newer.replace(b"537\n", b"537,gfx942:sramecc+:xnack-,304\n")).entries
    assert entry.solution == "56537" and str(entry.device) == "gfx942:304"


def test_what_a_console_shows() -> None:
    found = table(b"[0]:" + HEAD + b"\n    " + ROW + b"\nWinner:\n[1]:" + HEAD + b"\r\n    " + ROW)
    assert [entry.line for entry in found.entries] == [2, 5] and not found.problems
    assert problem_of_entry(found, found.entries[1]).op == "mm"


def test_releases_of_2024_wrote_no_header() -> None:
    """37 cells by their places; one of them is the buffer or the auxiliary type, as asked for."""
    row = ROW.replace(b",56537", b",56537,gfx942:sramecc+:xnack-,304")
    other = row.replace(b"f32_r,512,", b"f32_r,bf16_r,")
    found = table(b"Git Version: 47700734\n\n    " + row + b"\n\n    " + other + b"\n" + row[:-4])
    first, second = found.entries
    assert (first.line, first.solution, first.ms, str(first.device)) == (
        (3, "56537", 0.0125, "gfx942:304")
    )
    assert ("rotating_buffer", "512") in first.extra and ("aux_type", "bf16_r") in second.extra
    assert problem_of_entry(found, first).shapes == ((16, 64), (64, 96))
    assert [fault.line for fault in found.problems] == [6]
    assert found.rewritten({each: found.text(each) for each in found.entries}) == found.data


def test_each_run_writes_its_own_header() -> None:
    named = HEAD.replace(b"rotating_buffer,", b"").replace(b"soulution", b"solution") + b",CUs"
    shorter = ROW.replace(b"f32_r,512,", b"f32_r,") + b",304"
    found = table(FILE + named + b"\n" + shorter + b"\n" + HEAD + b"\n" + ROW + b"\n")
    assert [entry.ms for entry in found.entries] == [0.0125] * 3
    assert [entry.device.units for entry in found.entries] == [None, 304, None]


def test_a_console_names_the_solution_below_its_row() -> None:
    head = HEAD[: HEAD.rindex(b",")]
    data = (
        b"hipBLASLt version: 100200\nDevice ID 0 : gfx950, 2 of them\n[0]:" + head + b"\n    "
        + ROW[:-6] + b"\n    --Solution index: 302128\n    --Solution name:  Cijk_A\n[1]:"
        + head + b"\n    " + ROW[:-6] + b"\n"
    )  # fmt: skip
    found = table(data)
    assert [entry.solution for entry in found.entries] == ["Cijk_A", ""] and not found.problems
    assert ("solution_index", "302128") in found.entries[0].extra
    format = format_named("hipblaslt")
    assert format is not None and format.stream is not None
    reader = format.stream("bench.log")
    seen = [record for record in reader.feed(data) if isinstance(record, Seen)]
    assert len({record.uid for record in seen}) == 2 and len(seen) == 4  # each line tells more
    assert [choice.name for choice in seen[2].tuning.choices] == ["Cijk_A"]
