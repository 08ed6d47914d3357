"""Parts of K on a GPU: added by a second kernel or by the blocks of a cluster, which no CPU has.

Skipped where torch sees no GPU.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from backend.templates.config import GemmConfig, SkinnyConfig  # noqa: E402
from backend.toolchain import code_cache  # noqa: E402
from backend.toolchain.target import cuda  # noqa: E402
from tests.support.template_cases import Binary, Class  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]

FORM = Class("bfloat16", b_k_fast=True, batched=True)
CONFIGS = (
    GemmConfig(16, 64, 128, 16, 16, "mma", 1, 8, 8, 8, 4),
    GemmConfig(64, 64, 64, 32, 32, "mma", 1, 8, 8, 8, 4),
    GemmConfig(64, 128, 64, 16, 128, "wgmma", 1, 8, 8, 8, 4),
    SkinnyConfig(8, 16, 1, 4, 8, 8, unit="mma", stages=8),
    SkinnyConfig(16, 32, 1, 8, 8, 8, unit="mma", stages=3),
)
SIZES = ((1, 64, 512, 1), (7, 331, 1031, 1), (16, 264, 4096, 1), (70, 136, 1000, 3), (5, 40, 8, 3))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: Binary(FORM, config).name)
def test_parts_are_added_right_and_in_order(
    config: GemmConfig | SkinnyConfig, tmp_path: Path
) -> None:
    major, minor = torch.cuda.get_device_capability()
    if torch.version.hip or major < 9:
        pytest.skip("clusters are of sm_90 and later")
    target = cuda(f"{major}.{minor}").specific
    rendered = Binary(FORM, config).render()
    library = code_cache.load(code_cache.compile(rendered.source, target, cache_root=tmp_path).path)
    pointers = sum(arg.kind in ("input", "output") for arg in rendered.args)
    entry = library.entry(
        rendered.name, code_cache.argtypes(pointers, len(rendered.args) - pointers)
    )
    dtype, stream = torch.bfloat16, torch.cuda.current_stream().cuda_stream
    for m, n, k, batch in SIZES:
        ld, ld_out = -(-k // 8) * 8, -(-n // 8) * 8 + 8
        left = torch.randn(batch, m, ld, device="cuda").to(dtype)
        right = torch.randn(batch, n, ld, device="cuda").to(dtype)
        left[:, :, k:] = right[:, :, k:] = float("nan")
        exact = left[:, :, :k].double() @ right[:, :, :k].double().mT
        bound = (
            4 * k * 2.0**-24 * (left[:, :, :k].double().abs() @ right[:, :, :k].double().abs().mT)
        )
        bound += 2 * torch.finfo(dtype).eps * exact.abs() + 2.0**-14
        for split in (1, 2, 3, 4, 8):
            numbers = {"M": m, "N": n, "K": k, "B": batch, "split_k": split}
            numbers |= {"ld_a": ld, "ld_b": ld, "ld_out": ld_out}
            numbers |= {"batch_a": m * ld, "batch_b": n * ld, "batch_out": m * ld_out}
            results = []
            for _ in range(2):
                out = torch.full((batch, m, ld_out), 7.0, device="cuda", dtype=dtype)
                places = {"X": left, "W": right, "Y": out}
                values = [
                    places[arg.name].data_ptr() if arg.name in places else numbers[arg.name]
                    for arg in rendered.args
                ]
                size = ctypes.c_size_t()
                library.check(rendered.name, entry(*values, ctypes.byref(size), None, None))
                room = torch.full((size.value,), 255, device="cuda", dtype=torch.uint8)
                library.check(rendered.name, entry(*values, None, room.data_ptr(), stream))
                results.append(out)
            error = (results[0][:, :, :n].double() - exact).abs()
            assert bool((error <= bound).all()), (numbers, float(error.max()))
            assert bool((results[0][:, :, n:] == 7).all()), numbers
            assert torch.equal(results[0], results[1]), numbers
