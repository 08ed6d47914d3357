"""Rows that TunableOp found, put into a file of its results."""

from __future__ import annotations

import math

import pytest

from backend.tables.tunableop import NotMergeable, TunedRow, is_product, keys_in, merged

HERE = {"PT_VERSION": "2.9.0", "GCN_ARCH_NAME": "gfx942:sramecc+:xnack-"}
HEAD = b"Validator,PT_VERSION,2.9.0\nValidator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-\n"
OP = "GemmTunableOp_Half_NN"
OLD = b"GemmTunableOp_Half_NN,nn_1_2_3_ld_1_3_1,Gemm_Rocblas_7,0.50,BLAS_PARAMS: odd\n"
ODD = b"\nnot a row at all\n" + OLD.replace(b"Rocblas_7", b"Rocblas_8")
NEW = TunedRow(OP, "nn_4_5_6_ld_4_6_4", "Gemm_Hipblaslt_12", 0.0123456789)
AGAIN = TunedRow(OP, "nn_1_2_3_ld_1_3_1", "Default", 0.25)
LINE = b"GemmTunableOp_Half_NN,nn_4_5_6_ld_4_6_4,Gemm_Hipblaslt_12,0.0123457\n"


def test_a_new_file_has_the_validators_first_and_each_product_once() -> None:
    assert merged(b"", HERE, [NEW, NEW._replace(solution="Default")]) == HEAD + LINE
    assert keys_in(HEAD + LINE, HERE) == {NEW.key}
    assert keys_in(b"", HERE) == frozenset()


def test_what_is_there_stays_byte_for_byte() -> None:
    there = HEAD + OLD + ODD
    assert merged(there, HERE, [AGAIN, NEW]) == there + LINE
    assert merged(there, HERE, [AGAIN]) == there
    assert merged(there[:-1], HERE, [AGAIN]) == there[:-1]  # not even a line's end is added
    assert merged(there[:-1], HERE, [NEW]) == there + LINE


def test_force_changes_the_row_that_pytorch_takes_and_no_other() -> None:
    new = merged(HEAD + OLD + ODD, HERE, [AGAIN, NEW], force=True)
    assert new == HEAD + OLD.replace(b"Gemm_Rocblas_7,0.50", b"Default,0.25") + ODD + LINE


def test_a_product_of_an_untuned_row_is_not_there_yet() -> None:
    """As a program that was killed leaves half a row."""
    half = f"{NEW.op},{NEW.params}".encode()
    assert merged(HEAD + half, HERE, [NEW]) == HEAD + half + b"\n" + LINE


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (HEAD.replace(b"2.9.0", b"2.8.0"), "PT_VERSION is 2.8.0, here it is 2.9.0"),
        (HEAD + b"Validator,PT_VERSION,2.8.0\n", "PT_VERSION is 2.8.0"),  # the last one counts
        (HEAD.splitlines(True)[0], "GCN_ARCH_NAME is missing"),
        (HEAD + b"Validator,MORE,1\n", "MORE is 1, here it is missing"),
        (OLD, "GCN_ARCH_NAME is missing"),
        (HEAD.replace(b"\n", b"\r\n"), "line ends"),
        (b"\xef\xbb\xbf" + HEAD, "byte order mark"),
        (b"M,N,K,us\n1,2,3,4\n", "no file of TunableOp"),
        (HEAD + b"\0", "no file of TunableOp"),
        (b"\n", "no file of TunableOp"),
        (HEAD.replace(b"2.9.0", b"\x1b[2J"), r"PT_VERSION is \?\[2J"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_another_file_is_refused_by_name(there: bytes, why: str, force: bool) -> None:
    with pytest.raises(NotMergeable, match=why):
        merged(there, HERE, [NEW], force=force)
    with pytest.raises(NotMergeable, match=why):
        keys_in(there, HERE)


@pytest.mark.parametrize(
    "row",
    [
        NEW._replace(op="Gemm"),
        NEW._replace(params="nn_4,5"),
        NEW._replace(params="nn_4\nValidator,PT_VERSION,1"),
        NEW._replace(solution="Default,1\nGemmTunableOp_Half_NN"),
        NEW._replace(solution=""),
        NEW._replace(ms=math.inf),
        NEW._replace(ms=math.nan),
        NEW._replace(ms=0.0),
        NEW._replace(ms=-1.0),
    ],
)
def test_what_is_no_row_is_refused(row: TunedRow) -> None:
    with pytest.raises(NotMergeable):
        merged(b"", HERE, [row])


@pytest.mark.parametrize("validators", [{}, {"A": "1"}, {**HERE, "B": "1\n2"}, {**HERE, "C,": "1"}])
def test_what_are_no_validators_is_refused(validators: dict[str, str]) -> None:
    with pytest.raises(NotMergeable, match="validator"):
        merged(b"", validators, [NEW])


def test_a_product() -> None:
    assert is_product("GemmTunableOp_c10::complex<float>_NT,nt_1_2_3")
    for odd in ("", "a,b", "GemmTunableOp_Half_NN", "GemmTunableOp_Half_NN,nn_1;rm", "x\n,nn_1"):
        assert not is_product(odd)
