"""What programs asked other tuners for: lines as these write them become problems of torch, or are
left out with a reason."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from backend.model.problem import Problem
from backend.tables import hipblaslt, tunableop
from backend.tables.model import FP8, MAX_LINE, NOT_ITS_FORM, NotAProblem, NotARow, problem_of_gemm
from backend.tables.tunableop import UNSCALED
from rocm_tui.ingest.untuned import Asks, in_words, is_table, read_log, read_table

BF16, F16 = "torch.bfloat16", "torch.float16"
HIPBLASLT = (
    "hipblaslt-bench --api_method c -m 48 -n 176 -k 1024 --lda 48 --ldb 176 --ldc 48 --ldd 48  "
    "--stride_a 0 --stride_b 0 --stride_c 0 --stride_d 0  --alpha 1.000000 --beta 0.000000 "
    "--transA N --transB T --batch_count 1 --scaleA 0 --scaleB 0  --a_type bf16_r --b_type bf16_r "
    "--c_type bf16_r --d_type bf16_r --scale_type f32_r --bias_type f32_r   --compute_type f32_r "
    "--algo_method index --solution_index 218160 --activation_type none"
)


def tuned(line: str) -> Problem:
    reader = tunableop.TunableOpReader()
    assert reader.take(line.encode(), 1)
    return tunableop.TUNER.problem(reader.entry(line.encode(), 1, 0))


def called(line: str) -> Problem:
    gemm = hipblaslt.gemm_of(line)
    assert gemm is not None
    return problem_of_gemm(gemm)


def test_a_linear_layer_of_tunableop() -> None:
    found = tuned("GemmTunableOp_BFloat16_TN,tn_4096_16_1024_ld_1024_1024_4096")
    weight = (1024, 4096), (1, 1024)  # of torch's linear: (4096, 1024), transposed
    assert found.op == "mm" and found.dtypes == (BF16, BF16)
    assert found.shapes == ((16, 1024), weight[0]) and found.strides == ((1024, 1), weight[1])
    assert tuned("GemmTunableOp_BFloat16_TN,tn_4096_16_1024,Gemm_Rocblas_3,0.1") == found


def test_a_bias_is_as_long_as_the_result_is_wide() -> None:
    found = tuned("GemmAndBiasTunableOp_Half_TN,tn_4096_16_1024_ld_1024_2048_4096")
    assert found.op == "addmm" and found.dtypes == (F16,) * 3
    assert found.shapes == ((4096,), (16, 1024), (1024, 4096))
    assert found.strides == ((1,), (2048, 1), (1, 1024))


def test_a_batch() -> None:
    found = tuned("GemmStridedBatchedTunableOp_float_NN,nn_64_32_16_B_8_ld_64_16_64")
    assert found.op == "bmm" and found.shapes == ((8, 32, 16), (8, 16, 64))
    assert found.strides == ((512, 16, 1), (1024, 64, 1)) and found.precision == "highest"
    assert tuned("GemmTunableOp_tf32_NN,nn_8_8_8_ld_8_8_8").precision == "high"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_BFloat16_TN,tn_1_1_1_ld_1_1_1", UNSCALED),
        ("GemmTunableOp_c10::complex<float>_NN,nn_8_8_8_ld_8_8_8", "the type c10::complex<float>"),
        ("NewTunableOp_float_NN,nn_8_8_8_ld_8_8_8", "the op NewTunableOp"),
        ("GemmTunableOp_float_NN,tn_8_8_8_ld_8_8_8", NOT_ITS_FORM),
        ("GemmTunableOp_float_NN,nn_8_8_8_B_2_ld_8_8_8", NOT_ITS_FORM),
        ("GemmTunableOp_float_NN,nn_8_8_8_ld_8_8", NOT_ITS_FORM),
        ("GemmTunableOp_float_NN,nn_8_8_٨_ld_8_8_8", NOT_ITS_FORM),
        ("GemmTunableOp_float_NN", NOT_ITS_FORM),
        ("hello", NOT_ITS_FORM),
        ("GemmTunableOp_float_NN,nn_8_8_8_ld_7_8_8", "leading dimension"),
        ("GemmTunableOp_float_NN,nn_0_8_8_ld_8_8_8", "a size of 0"),
        (f"GemmTunableOp_float_NN,nn_{10**14}_8_8", "beyond all bounds"),
        ("GemmStridedBatchedTunableOp_float_TN,tn_50_50_64_B_12_ld_768_768_50", "is unknown"),
    ],
)
def test_what_tunableop_lookups_for_that_is_no_problem(line: str, reason: str) -> None:
    with pytest.raises((NotAProblem, NotARow), match=reason):
        tuned(line)


def test_a_call_of_hipblaslt() -> None:
    found = called(f"[2026] rank 3: {HIPBLASLT}\n")
    assert found.op == "mm" and found.dtypes == (BF16, BF16) and found.precision is None
    assert found.shapes == ((176, 1024), (1024, 48)) and found.strides == ((1, 176), (48, 1))
    batch = HIPBLASLT.replace("_count 1", "_count 3").replace("bf16_r", "f32_r")
    found = called(batch.replace("stride_a 0", "stride_a 99").replace("stride_b 0", "stride_b 7"))
    assert found.op == "bmm" and found.precision == "highest"
    assert found.strides == ((7, 1, 176), (99, 48, 1))
    bias = HIPBLASLT.replace("bias_type f32_r", "bias_type bf16_r") + " --bias_vector"
    assert called(f"{bias} --bias_source d").shapes[0] == (48,)
    assert hipblaslt.gemm_of("run hipblaslt-bench with -m to see more") is None
    assert hipblaslt.gemm_of("nothing of it") is None


@pytest.mark.parametrize(
    ("was", "becomes", "reason"),
    [
        ("--scaleA 0", "--scaleA 1", FP8),
        ("--a_type bf16_r", "--a_type f8_r", FP8),
        ("--d_type bf16_r", "--d_type f32_r", "another type than its operands"),
        ("--activation_type none", "--activation_type gelu", "activation"),
        ("--beta 0.000000", "--beta 1.000000", "alpha, beta"),
        ("--alpha 1.000000", "--alpha x", NOT_ITS_FORM),
        ("-k 1024", "-k 1e3", NOT_ITS_FORM),
        ("--transA N", "--transA C", NOT_ITS_FORM),
        ("--scale_type", "--bias_vector --scale_type", "a bias of another type"),
        ("--scale_type", "--grouped_gemm --scale_type", "a group"),
        ("bf16_r", "f6_r", FP8),
        ("bf16_r", "q_r", "the type q_r"),
        ("--lda 48", "--lda 4", "leading dimension"),
        ("--batch_count 1", "--batch_count 0", "a size of 0"),
    ],
)
def test_what_hipblaslt_is_called_with_that_is_no_problem(
    was: str, becomes: str, reason: str
) -> None:
    assert was in HIPBLASLT
    with pytest.raises(NotAProblem, match=reason):
        called(HIPBLASLT.replace(was, becomes))


def test_a_table_of_aiter(tmp_path: Path) -> None:
    table = tmp_path / "untuned.csv"
    table.write_text(
        "\ufeffM,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n"
        "16,1280,8192,False,torch.bfloat16,torch.bfloat16,False,False\n"
        "16,1280,8192,False,torch.bfloat16,torch.bfloat16,False,False\n\n"
        "1,1280,8192,True,torch.float16,torch.float16,False,False\n"
        "1,1280,8192,False,torch.bfloat16,torch.float32,False,False\n"
        "1,1280,8192,False,torch.bfloat16,torch.bfloat16,True,False\n"
        "1,1280,8192,False,torch.float8_e4m3fn,torch.bfloat16,True,False\n"
        "1,1280,8192,False,torch.bfloat16,torch.bfloat16,False,True\n"
        "1,1280,8192,maybe,torch.bfloat16,torch.bfloat16,False,False\n"
        "1,1280,-5,False,torch.bfloat16,torch.bfloat16,False,False\n"
        "1,1280\n"
    )
    assert is_table(table)
    asks = read_table(table)
    (plain, twice), (bias, once) = asks.problems.items()
    assert (plain.op, twice, bias.op, once) == ("mm", 2, "addmm", 1)
    assert plain.shapes == ((16, 8192), (8192, 1280)) and plain.strides == ((8192, 1), (1, 8192))
    assert bias.shapes[0] == (1280,) and bias.dtypes == (F16,) * 3
    assert asks.lines == 10 and asks.left_out[NOT_ITS_FORM] == 3 and asks.left_out[FP8] == 2
    assert in_words(asks.left_out).startswith("3 × not in the form")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("gfx,cu_num,M,N,K,libtype,us\ngfx950,256,16,512,7168,asm,7\n", "does not name the types"),
        ("token,model_dim,inter_dim,expert,topk\n1,6144,2048,257,9\n", "mixture of experts"),
        ("gfx,b,m,n,k,us\ngfx950,2,1,1024,4096,7.8\n", "does not name the types"),
    ],
)
def test_tables_of_other_things(tmp_path: Path, text: str, reason: str) -> None:
    table = tmp_path / "other.csv"
    table.write_text(text)
    asks = read_table(table)
    assert is_table(table) and not asks.problems and asks.lines == 1
    assert reason in next(iter(asks.left_out))


def test_a_damaged_file_is_counted_to_its_end(tmp_path: Path) -> None:
    line = b"GemmTunableOp_Half_TN,tn_64_%d_32_ld_32_32_64\n"
    noise = random.Random(7)
    table = tmp_path / "tunableop_untuned0.csv"
    with table.open("wb") as stream:
        stream.write(b"Validator,PT_VERSION,2.13.0\n\r\n")
        for size in range(1, 101):
            stream.write(line % (size % 10 + 1))
            stream.write(noise.randbytes(300).replace(b"\n", b"") + b"\n")
        # what is behind a line that is too long belongs to it
        stream.write(b"x" * (3 * MAX_LINE) + line % 66 + line % 77)
        stream.write((line % 9).rstrip())
    asks = read_table(table)
    assert is_table(table)
    rows = {problem.shapes[0][0]: count for problem, count in asks.problems.items()}
    assert rows == dict.fromkeys(range(1, 11), 10) | {9: 11, 77: 1}
    assert sum(asks.left_out.values()) == 101 and len(asks.left_out) <= 21


def test_calls_in_a_log(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(f"epoch 1\n{HIPBLASLT}\n{HIPBLASLT.replace('-n 176', '-n 177')}\n{HIPBLASLT}\n")
    asks = read_log(log)
    assert not is_table(log) and list(asks.problems.values()) == [2]
    assert in_words(asks.left_out) == "1 × a leading dimension that its matrix cannot have"
    assert asks.lines == 3


def test_reasons_do_not_grow_without_end() -> None:
    asks = Asks()
    for number in range(1000):
        asks.leave_out(f"reason {number}")
    assert len(asks.left_out) <= 21 and sum(asks.left_out.values()) == 1000


def test_what_is_no_file_is_no_table(tmp_path: Path) -> None:
    assert not is_table(tmp_path) and not is_table(tmp_path / "no") and not is_table(Path("\0"))
