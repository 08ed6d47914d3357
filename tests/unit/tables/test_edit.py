"""Another solution in the place of an entry's: one row changes, whatever surrounds it, or none."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from backend.errors import PinRefused
from backend.pins.tables import entry_of, rewritten
from backend.tables.model import Table, entry_key
from backend.tables.registry import parse

TUNABLEOP = (
    b"\xef\xbb\xbfValidator,PT_VERSION,2.9.0\r\n"
    b"Validator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-\n"
    b"GemmTunableOp_Half_TN,tn_320_64_128,Gemm_Hipblaslt_12683,0.182\r\n"
    b"GemmTunableOp_Half_NT,nt_320_64_128,Default,0.5,BLAS_PARAMS: - { M: 320, N: 64 }\n"
    b"no row at all\n"
    b"GemmTunableOp_Half_TN,tn_320_64_128,Gemm_Rocblas_3,0.2"
)
GEMM = (
    b"gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,"
    b"err_ratio,tflops,bw\n"
    b"gfx950,256,16,1280,8192,False,torch.bfloat16,torch.bfloat16,False,False,asm,7,2,7.5374,"
    b"some_kernel,0.01,44.52,2800.1\r\n"
    b"gfx942,304,16,1280,8192,False,torch.bfloat16,torch.bfloat16,False,False,asm,7,2,9.5,"
    b"some_kernel,0.01,35.3,2221\n"
)
EXPERTS = (
    b'{\n  "triton_version": "3.4.0",\n  "1": {"BLOCK_SIZE_M": 16, "num_warps":4},\n'
    b'\t"64" :\r\n{ "BLOCK_SIZE_M":16,\n"num_warps": 4 }\n}\n'
)
ODD_TIMES = ("0", "0.0", "-0", "1e300", "1e-30", "nan", "1e8000")
CODE = ("exit()", "[*open(0)]", "os.system('x')", "a;b", "`x`", "$(x)", "lambda:(yield)", "é")
NAMED = "E=8,N=176,device_name=AMD_Instinct_MI300X.json"


def table(data: bytes, name: str) -> Table:
    found = parse(data, name)
    assert found is not None
    return found


def changed(found: Table, line: int, values: Mapping[str, str]) -> bytes:
    (entry,) = (entry for entry in found.entries if entry.line == line)
    return found.rewritten({entry: rewritten(found, found.text(entry), values)})


@pytest.mark.parametrize(
    "data, name, line, values, old, new",
    [
        (TUNABLEOP, "r0.csv", 3, {"solution": "Gemm_Rocblas_-7"},
         b"Gemm_Hipblaslt_12683,0.182", b"Gemm_Rocblas_-7,nan"),
        (TUNABLEOP, "r0.csv", 3, {"solution": "Default", "ms": "1e-2"},
         b"Gemm_Hipblaslt_12683,0.182", b"Default,1e-2"),
        (TUNABLEOP, "r0.csv", 4, {"solution": "Gemm_Hipblaslt_5"},
         b"Default,0.5,BLAS", b"Gemm_Hipblaslt_5,nan,BLAS"),
        (GEMM, "bf16_tuned_gemm.csv", 2, {"solidx": "9", "splitK": "0", "us": "7.1"},
         b"asm,7,2,7.5374,some_kernel,0.01,44.52,2800.1",
         b"asm,9,0,7.1,some_kernel,nan,nan,nan"),
        (GEMM, "bf16_tuned_gemm.csv", 3, {"libtype": "ck", "us": "8", "bw": "10"},
         b"asm,7,2,9.5,some_kernel,0.01,35.3,2221", b"ck,7,2,8,some_kernel,nan,nan,10"),
        (GEMM, "bf16_tuned_gemm.csv", 3, {"libtype": "hipblaslt"},
         b"asm,7,2,9.5,some_kernel,0.01,35.3,2221", b"hipblaslt,7,2,nan,some_kernel,nan,nan,nan"),
        (EXPERTS, NAMED, 3, {"num_warps": "8"}, b'"num_warps":4}', b'"num_warps":8}'),
        (EXPERTS, NAMED, 4, {"num_warps": "8", "BLOCK_SIZE_M": "128"},
         b'{ "BLOCK_SIZE_M":16,\n"num_warps": 4 }', b'{ "BLOCK_SIZE_M":128,\n"num_warps": 8 }'),
    ],
)  # fmt: skip
def test_one_row_changes_and_no_other_byte(
    data: bytes, name: str, line: int, values: Mapping[str, str], old: bytes, new: bytes
) -> None:
    found = table(data, name)
    assert data.count(old) == 1
    assert changed(found, line, values) == data.replace(old, new)
    (entry,) = (entry for entry in found.entries if entry.line == line)
    (again,) = (
        each for each in table(changed(found, line, values), name).entries if each.line == line
    )
    assert (again.op, again.key, again.device) == (entry.op, entry.key, entry.device)
    assert again.solution != entry.solution
    assert ("us" in values or "ms" in values) is (again.ms is not None)


def test_the_same_values_leave_the_row_as_it_is() -> None:
    for data, name, line, values in [
        (TUNABLEOP, "r0.csv", 3, {"solution": "Gemm_Hipblaslt_12683"}),
        (GEMM, "bf16_tuned_gemm.csv", 2, {"solidx": "7"}),
        (EXPERTS, NAMED, 3, {"num_warps": "4"}),
    ]:
        assert changed(table(data, name), line, values) == data


@pytest.mark.parametrize(
    "data, name, line, values, why",
    [
        (TUNABLEOP, "r0.csv", 3, {"solution": "Default,0.1\nValidator"}, "is no solution"),
        (TUNABLEOP, "r0.csv", 3, {"ms": "-1"}, "is no time"),
        (TUNABLEOP, "r0.csv", 3, {"ms": "inf"}, "is no time"),
        (TUNABLEOP, "r0.csv", 3, {"Validator": "x"}, "is not set here; there are solution, ms"),
        (b"GemmTunableOp_Half_TN,tn_320_64_128\n", "u.csv", 1, {"solution": "Default"}, "untuned"),
        (GEMM, "bf16_tuned_gemm.csv", 2, {"M": "32"}, "is not set here"),
        (GEMM, "bf16_tuned_gemm.csv", 2, {"cu_num": "80"}, "is not set here"),
        (GEMM, "bf16_tuned_gemm.csv", 2, {"libtype": "a,b"}, "is not allowed in the column"),
        (GEMM, "bf16_tuned_gemm.csv", 2, {"libtype": 'a"b'}, "is not allowed in the column"),
        (TUNABLEOP, "r0.csv", 3, {"ms": "1_0"}, "is no time"),
        *((TUNABLEOP, "r0.csv", 3, {"ms": time}, "is no time") for time in ODD_TIMES),
        *((GEMM, "bf16_tuned_gemm.csv", 2, {"us": time}, "is no time") for time in ODD_TIMES),
        *(
            (GEMM, "bf16_tuned_gemm.csv", 2, {name: word}, "is not allowed in the column")
            for name in ("libtype", "kernelName")
            for word in CODE
        ),
        *(
            (GEMM, "bf16_tuned_gemm.csv", 2, {name: word}, "it takes")
            for name in ("solidx", "splitK", "tflops")
            for word in CODE
        ),
        *((EXPERTS, NAMED, 3, {"num_warps": word}, "is no whole number") for word in CODE),
        *((TUNABLEOP, "r0.csv", 3, {"solution": word}, "is no solution") for word in CODE),
        (TUNABLEOP, "r0.csv", 3, {"solution": "Gemm_Rocblas_NT_7"}, "another layout than the row"),
        (GEMM, "bf16_tuned_gemm.csv", 2, {"us": "fast"}, "is no time"),
        (GEMM, "bf16_tuned_gemm.csv", 2, {"solidx": "abc"}, "solidx: it takes a whole number"),
        (GEMM, "bf16_tuned_gemm.csv", 2, {"splitK": "nan"}, "splitK: it takes a whole number"),
        (GEMM, "bf16_tuned_gemm.csv", 2, {"tflops": "much"}, "tflops: it takes a number"),
        (EXPERTS, NAMED, 3, {"num_warps": "many"}, "is no whole number"),
        (EXPERTS, NAMED, 3, {"num_stages": "2"}, "is no number of this entry"),
    ],
)
def test_what_is_refused(
    data: bytes, name: str, line: int, values: Mapping[str, str], why: str
) -> None:
    with pytest.raises(PinRefused, match=why):
        changed(table(data, name), line, values)


def test_of_rows_that_say_the_same_the_one_that_is_taken_counts() -> None:
    """PyTorch keeps the first of two rows; Python's JSON the last of two members."""
    found = table(TUNABLEOP, "r0.csv")
    meant = entry_of(found, entry_key("tunableop", found.entries[2]))
    assert meant is not None and meant.line == 3
    twice = table(b'{"1": {"num_warps": 4}, "1": {"num_warps": 8}}', NAMED)
    with pytest.raises(PinRefused, match="more than once"):
        entry_of(twice, entry_key("moe", twice.entries[0]))
