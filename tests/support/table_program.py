"""A program that looks products up in a tuned table as a library does, and takes as long a step as
the solution says: the number at its end is milliseconds. Without a solution a step takes 20.

python table_program.py tunableop|aiter|fmoe|vllm|sglang|unread|elsewhere

The lookups are those that the docstring of rocm_tui/actions/trial_tables.py names. Each step says
when it should have been printed, so that a test need not trust the clock; a logged lookup makes all
steps longer. `unread` is faster where it is given a table, but looks into none; `elsewhere` is
vLLM with a file of its own.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import time
from pathlib import Path

kind = sys.argv[1]
env = os.environ
NAME = "E=8,N=1024,device_name=AMD_Instinct_MI300X,dtype=fp8_w8a8.json"
OP, PARAMS = "GemmTunableOp_Half_TN", "tn_64_8_32_ld_32_32_64"
ORDINAL = "0"


def tunableop() -> str | None:
    if env.get("PYTORCH_TUNABLEOP_ENABLED") != "1":
        return None
    name = env.get("PYTORCH_TUNABLEOP_FILENAME", "tunableop_results.csv")
    stem, dot, suffix = name.rpartition(".")
    path = Path(name.replace("%d", ORDINAL) if "%d" in name else stem + ORDINAL + dot + suffix)
    rows, valid = {}, False
    if env.get("PYTORCH_TUNABLEOP_RECORD_UNTUNED") != "1" and path.exists():
        for op, *cells in csv.reader(path.read_text().splitlines()):
            valid |= [op, *cells] == ["Validator", "PT_VERSION", "2.9.0"]
            rows[op, cells[0]] = cells[1]
    found = rows.get((OP, PARAMS)) if valid else None
    if env.get("PYTORCH_TUNABLEOP_VERBOSE") == "3":
        said = (
            "ResultEntry found" if found else "missing params_signature, returning null ResultEntry"
        )
        print(f"{said} for {OP},{PARAMS}", file=sys.stderr)
    if env.get("PYTORCH_TUNABLEOP_TUNING", "1") != "0":
        path.write_text("tuned anew")
    return found


def aiter() -> str | None:
    path = env.get("AITER_CONFIG_GEMM_A8W8") or "/opt/aiter/configs/a8w8_tuned_gemm.csv"
    rows = {}
    if Path(path).exists():
        for row in csv.DictReader(Path(path).read_text().splitlines()):
            key = row["gfx"], row["cu_num"], row["M"], row["N"], row["K"]
            rows[key] = row["kernelName"]
    for rounded in ("7", "16"):
        if name := rows.get(("gfx942", "304", rounded, "1536", "7168")):
            if env.get("AITER_LOG_TUNED_CONFIG") == "1":
                print(
                    f"[aiter] shape is M:7, N:1536, K:7168, found padded_M: {rounded}, N:1536, "
                    f"K:7168 is tuned on cu_num = 304 in {path} , kernel name is {name}!"
                )
            return name
    print(
        f"[aiter] shape is M:7, N:1536, K:7168, not found tuned config in {path}, will use "
        "default config!"
    )
    return None


def fmoe() -> str | None:
    kinds = (
        "ActivationType.Gelu", "torch.bfloat16", "torch.float8_e4m3fnuz", "torch.float8_e4m3fnuz",
        "QuantType.per_Token",
    )  # fmt: skip
    key = ("304", "7", "2304", "1536", "8", "2", *kinds, "1", "1")
    path = Path(env.get("AITER_CONFIG_FMOE") or "/opt/aiter/configs/tuned_fmoe.csv")
    rows = [*csv.reader(path.read_text().splitlines())] if path.exists() else [[]]
    index = {name: at for at, name in enumerate(rows[0])}
    found = [row for row in rows[1:] if tuple(row[: len(key)]) == key]
    names = [found[0][index[name]] for name in ("kernelName1", "kernelName2")] if found else []
    tag = f"(kernelName1={names[0]!r}, kernelName2={names[1]!r})" if names else "default"
    printed = ("gfx942", *map(int, key[:6]), *kinds, True, True)
    print(f"[aiter] [fused_moe] using 2stage {tag} for {printed} ")
    return names[1] if names else None


def moe(folders: list[str], said: str) -> str | None:
    paths = [f"{folder}/{NAME}" for folder in folders]
    for path in paths:
        if Path(path).exists():
            if env.get("VLLM_LOGGING_LEVEL", "INFO") == "INFO":
                print(f"INFO 11-27 fused_moe.py:1053] {said.format(path)}")
            configs = {int(key): value for key, value in json.loads(Path(path).read_text()).items()}
            return f"stages_{configs[min(configs, key=lambda m: abs(m - 7))]['num_stages']}"
    print(f"WARNING Using default MoE config. Config file not found at {', '.join(paths)}")
    return None


def vllm() -> str | None:
    folder = env.get("VLLM_TUNED_CONFIG_FOLDER")
    own = "/opt/vllm/fused_moe/configs"
    folders = [own] if folder is None else [folder, own]
    return moe(folders, "Using configuration from {} for MoE layer.")


def sglang() -> str | None:
    folder = env.get("SGLANG_MOE_CONFIG_DIR", "/opt/sglang/fused_moe_triton")
    return moe([f"{folder}/configs/triton_3_4_0"], "Using MoE kernel config from {}.")


def unread() -> str | None:
    return "faster_5" if env.get("PYTORCH_TUNABLEOP_ENABLED") == "1" else None


def elsewhere() -> str | None:
    print(f"Using configuration from /opt/vllm/configs/{NAME} for MoE layer.")
    return "faster_5" if "VLLM_TUNED_CONFIG_FOLDER" in env else None


solution = globals()[kind]()
ms = 20.0 if solution is None else float(solution.rpartition("_")[2])
logged = {"PYTORCH_TUNABLEOP_VERBOSE", "AITER_LOG_TUNED_CONFIG"} & env.keys()
seconds = ms / 1e3 + 0.1 * bool(logged)
code = Path(env["TORCHINDUCTOR_CACHE_DIR"]) / "aa"
code.mkdir(exist_ok=True)
(code / "caaa.py").write_text(f"code = {solution if 'OWN_CODE' in env else 0}\n")
for step in range(8):
    print(f"step {step} at {step * seconds:.3f} s", flush=True)
    time.sleep(seconds if "SLEEP" in env else 0)
