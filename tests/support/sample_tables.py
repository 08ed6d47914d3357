"""Tables of three tuners with a few rows each, some of which have a fault, and a log with a tuning
of one of their products: what the screens show of them is the same on every machine."""

from __future__ import annotations

from pathlib import Path

_VALIDATORS = (
    ("PT_VERSION", "2.9.0"),
    ("HIP_VERSION", "70051831"),
    ("ROCM_VERSION", "7.0.0.0-38-0a1b2c3d4e"),
    ("HIPBLASLT_VERSION", "100000-5e6f7a8b9c"),
    ("GCN_ARCH_NAME", "gfx942:sramecc+:xnack-"),
    ("ROCBLAS_VERSION", "5.0.0.1d2e3f4a5b"),
)
_BF16 = "GemmTunableOp_BFloat16_TN,tn_5120_{n}_8192_ld_8192_8192_5120,Gemm_{solution}"
_TUNABLEOP = (
    _BF16.format(n=16, solution="Hipblaslt_41873,0.02914"),
    _BF16.format(n=512, solution="Hipblaslt_41902,0.11377"),
    _BF16.format(n=2048, solution="Rocblas_7716,0.39121"),
    "GemmAndBiasTunableOp_BFloat16_TN,tn_1536_512_5120_ld_5120_5120_1536,Default,0.02605",
    _BF16.format(n=512, solution="Hipblaslt_39114,0.10891"),
    "GemmStridedBatchedTunableOp_Half_NN,nn_128_256_256_B_64_ld_128_256_128,"
    "Gemm_Hipblaslt_2210,0.01884",
)
_GEMM = "gfx,cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio"
_BLOCK = "a8w8_blockscale_1x128x128_256x{m}x128x128_16x16_16x16_1x1_intrawave_v{v}"
_AITER = (
    ("gfx942,304,16,7168,2048,ck,4,0,14.82", 16, 1, "31.7,997.43,0.0"),
    ("gfx942,304,64,7168,2048,ck,5,0,19.04", 64, 1, "98.69,806.94,0.0002"),
    ("gfx942,304,256,7168,2048,ck,9,2,61.35", 64, 3, "122.51,318.66,0.0"),
    ("gfx942,304,1024,7168,2048,ck,11,0,57.2", 256, 3, "525.61,549.82,0.0001"),
    ("gfx950,256,1024,7168,2048,asm,11,0,38.41", 256, 3, "782.72,818.79,0.0"),
)
_FUSED = (
    "gfx,cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,"
    "use_g1u1,doweight_stage1,block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,run_1stage,tflops,bw"
)
_MOE = (
    "gfx942,304,{m},7168,256,257,9,ActivationType.Silu,torch.bfloat16,torch.float8_e4m3fnuz,"
    "torch.float8_e4m3fnuz,QuantType.per_1x128,1,0,{b},0,{us1},fmoe_stage1_fp8_g1u1_{b}x128_2tg,"
    "0.2%,{us2},moe_ck2stages_gemm2_256x{b}x64x128,0.4%,{us},0,{t},{bw}"
)
_LADDER = """{
    "1": {
        "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 256, "GROUP_SIZE_M": 1,
        "num_warps": 2, "num_stages": 2, "waves_per_eu": 0
    },
    "64": {
        "BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 4,
        "num_warps": 4, "num_stages": 2, "waves_per_eu": 0
    }
}
"""
_LOG = """AUTOTUNE mm(512x8192, 8192x5120)
strides: [8192, 1], [1, 8192]
dtypes: torch.bfloat16, torch.bfloat16
  triton_mm_7 0.1032 ms 100.0% BLOCK_K=64, BLOCK_M=128, BLOCK_N=256, num_stages=2, num_warps=8
  mm 0.1159 ms 89.0%
  triton_mm_4 0.1284 ms 80.4% BLOCK_K=32, BLOCK_M=128, BLOCK_N=128, num_stages=2, num_warps=4
SingleProcess AUTOTUNE benchmarking takes 0.7412 seconds and 2.0133 seconds precompiling
"""
NAMES = (
    "tunableop_results0.csv",
    "a8w8_blockscale_tuned_gemm.csv",
    "tuned_fmoe.csv",
    "E=128,N=352,device_name=AMD_Instinct_MI300X.json",
    "train.log",
)


def write(folder: Path) -> list[Path]:
    """The tables and the log, in a new folder."""
    folder.mkdir()
    heads = (f"Validator,{name},{value}" for name, value in _VALIDATORS)
    gemms = [f"{first},{_BLOCK.format(m=m, v=v)},{last}" for first, m, v, last in _AITER]
    moes = [
        _MOE.format(m=1, b=16, us1=19.11, us2=12.87, us=31.98, t="3.1", bw="3108.2"),
        _MOE.format(m=48, b=32, us1=118.4, us2=81.73, us=200.13, t="23.77", bw="7069.03"),
        _MOE.format(m=256, b=64, us1=141.02, us2=96.18, us=261.5, t="97.03", bw="5421.8"),
    ]
    texts = (
        [*heads, *_TUNABLEOP],
        [_GEMM, *gemms],
        [_FUSED, *moes],
        [_LADDER.rstrip()],
        [_LOG.rstrip()],
    )
    paths = [folder / name for name in NAMES]
    for path, lines in zip(paths, texts, strict=True):
        path.write_text("\n".join(lines) + "\n")
    return paths
