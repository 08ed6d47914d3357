"""Pointwise nodes before a product, in real compiles on the CPU: what our kernels compute where
they load a factor, and what is left to Inductor.

One process compiles all of it. Every tuning has our first choice alone.
"""

from __future__ import annotations

import re

import pytest

from tests.support.rocm_programs import Ran, run

pytestmark = pytest.mark.torch

PROGRAM = """
from torch._inductor import select_algorithm

def ours_alone(choices):
    return [choice for choice in choices if choice.name.startswith("rocm_")][:1] or choices

select_algorithm.add_preprocessing_fn(ours_alone)
config.fx_graph_cache = False
R, F, bf16 = torch.randn, torch.nn.functional, torch.bfloat16
def i8(*sizes): return torch.randint(-100, 100, sizes, dtype=torch.int8)
def u8(*sizes): return torch.randint(0, 256, sizes, dtype=torch.uint8)

def agree(name, function, *inputs, tolerance=2e-2, dynamic=None):
    part(name)
    torch._dynamo.reset()
    with torch.no_grad():
        got, want = torch.compile(function, dynamic=dynamic)(*inputs), function(*inputs)
    scale = want.abs().max().item()
    error = (got.double() - want.double()).abs().max().item()
    assert error <= tolerance * scale, (name, error, scale)
    print(name, "agrees", error, flush=True)

M, N, K = 36, 48, 128
def grouped(w, s): return (w.view(N, -1, 32).to(bf16) * s[:, :, None]).view(N, -1)
def nibbles(w, s, z):
    q = ((w[:, :, None] >> torch.arange(0, 8, 4, dtype=torch.uint8)) & 15).view(N, -1)
    return ((q.view(N, -1, 32) - z[:, :, None]).to(bf16) * s[:, :, None]).view(N, -1)

agree("cast", lambda x, w: x.to(bf16) @ w, R(M, K), R(K, N).to(bf16))
agree("cast-weight", lambda x, w: F.linear(x, w.to(bf16)), R(8, K).to(bf16), R(N, K))
agree("cast-row", lambda x, w: x.to(bf16) @ w, R(1, K), R(K, N).to(bf16))
agree("cast-both", lambda x, w: x.to(bf16) @ w.to(bf16), R(M, K), R(K, N))
agree("cast-batch", lambda x, w: torch.bmm(x.to(bf16), w), R(3, M, 40), R(3, 40, N).to(bf16))
agree("int8", lambda x, w, s: x @ (w.to(bf16) * s), R(M, K).to(bf16), i8(K, N), R(N).to(bf16))
agree("int8-linear", lambda x, w, s: F.linear(x, w.to(bf16) * s[:, None]),
      R(8, K).to(bf16), i8(N, K), R(N).to(bf16))
agree("int8-bias", lambda c, x, w, s: torch.addmm(c, x, w.to(bf16) * s),
      R(N).to(bf16), R(M, K).to(bf16), i8(K, N), R(N).to(bf16))
agree("groups", lambda x, w, s: F.linear(x, grouped(w, s)),
      R(M, K).to(bf16), i8(N, K), R(N, K // 32).to(bf16))
agree("repeated", lambda x, w, s: F.linear(x, w.to(bf16) * s.repeat_interleave(32, 1)),
      R(8, K).to(bf16), i8(N, K), R(N, K // 32).to(bf16))
agree("nibbles", lambda x, w, s, z: F.linear(x, nibbles(w, s, z)),
      R(8, K).to(bf16), u8(N, K // 2), R(N, K // 32).to(bf16), i8(N, K // 32))
agree("norm", lambda x, r, g, w: (x.float() * r[:, None]).to(bf16) * g @ w,
      R(M, K).to(bf16), R(M), R(K).to(bf16), R(K, N).to(bf16))
agree("behind-too", lambda x, w, y: torch.relu(x.to(bf16) @ w) + y,
      R(M, K), R(K, N).to(bf16), R(M, N).to(bf16))
agree("one-more", lambda x, w: (x + 1) @ (w + 1), R(M, 37), R(37, N), tolerance=1e-5)
agree("any-rows", lambda x, w: x.to(bf16) @ w, R(M, K), R(K, N).to(bf16), dynamic=True)

def packed(x, w, s): return torch._weight_int8pack_mm(x, w, s)
agree("packed-int8", packed, R(M, K).to(bf16), i8(N, K), R(N).to(bf16))
agree("packed-int8-row", packed, R(1, K), i8(N, K), R(N), tolerance=1e-5)

from backend.inductor.hip.template import ROCmTemplateKernel
call = ROCmTemplateKernel.call_kernel
def refuse(*args): raise RuntimeError("planted")
ROCmTemplateKernel.call_kernel = refuse
agree("fallback", lambda x, w, y: torch.relu(x.to(bf16) @ (w + 1)) + y,
      R(M, K), R(K, N).to(bf16), R(M, N).to(bf16))
ROCmTemplateKernel.call_kernel = call

agree("not-used-twice", lambda x, w: x.to(bf16) @ w + x.to(bf16)[:, :1].exp(),
      R(M, K), R(K, N).to(bf16))
def kept(x, w):
    y = x.to(bf16)
    return torch.cat([(y @ w).flatten(), y.flatten()])
agree("not-kept", kept, R(M, K), R(K, N).to(bf16))
agree("not-square", lambda x: (lambda y: y @ y)(x.to(bf16)), R(K, K))
agree("not-gathered", lambda x, at, w: x[at].to(bf16) @ w,
      R(2 * M, K), torch.randint(0, 2 * M, (M,)), R(K, N).to(bf16))
def stacked(w, s): return torch.stack([(w & 15).to(bf16), (w >> 4).to(bf16)], -1).view(N, K) * s
agree("not-stacked", lambda x, w, s: F.linear(x, stacked(w, s[:, None])),
      R(8, K).to(bf16), u8(N, K // 2), R(N).to(bf16))
agree("not-halves", lambda x, w: torch.cat([x.to(bf16), x.to(bf16) + 1], 1) @ w,
      R(M, 64), R(K, N).to(bf16))

# What follows is put together as on a GPU: there `cat` is a part of the node that reads it.
from torch._inductor import lowering
def as_on_gpu(inputs, dim=0):
    return lowering.pointwise_cat(inputs, lowering._validate_dim(inputs[0], dim, 0))
for op in (torch.ops.aten.cat, torch.ops.aten.cat.default):
    lowering.lowerings[op] = as_on_gpu

def scaled(q, s, z):
    return ((q.view(N, -1, 32).to(bf16) - z[:, :, None]) * s[:, :, None]).view(N, K)
def neighbours(w, s, z):
    return scaled(torch.stack((w & 0xF, w >> 4), dim=-1).reshape(N, K), s, z)
def halves(w, s, z): return scaled(torch.cat((w & 0xF, w >> 4), dim=1), s, z)
def half_lines(w, s, z):
    w = w.view(N // 2, K)
    return scaled(torch.cat(((w & 0xF0) >> 4, w & 0xF), dim=0), s, z)
def signed(w, s, z):
    q = torch.stack((w & 0xF, w >> 4), dim=-1).view(N, K).to(torch.int8) - 8
    return q * s.repeat_interleave(32, 1)
def floats(w, s, z):
    q = torch.stack(((w & 0xF).float(), (w >> 4).float()), dim=-1).flatten(-2)
    return (q.view(N, -1, 32) * s.float()[:, :, None] + z.float()[:, :, None]).view(N, K).to(bf16)

def int4(name, unpacked, rows=8, dynamic=None):
    part(name)
    torch._dynamo.reset()
    x, w, s, z = R(rows, K).to(bf16), u8(N, K // 2), R(N, K // 32).to(bf16), R(N, K // 32).to(bf16)
    with torch.no_grad():
        layer = lambda x, w, s, z: F.linear(x, unpacked(w, s, z))
        got = torch.compile(layer, dynamic=dynamic)(x, w, s, z).double()
        wide = [w] + [t.double() for t in (s, z)]
        want = F.linear(x.double(), exact[unpacked](*wide))
    error, scale = (got - want).abs().max().item(), want.abs().max().item()
    assert error <= 1e-2 * scale, (name, error, scale)
    print(name, "agrees", error, flush=True)

def nibble(w, high): return (w.int() >> (4 * high)) % 16
def groups(q, s, z): return (q.double() - z.repeat_interleave(32, 1)) * s.repeat_interleave(32, 1)
at, line, half = torch.arange(K), torch.arange(N), N // 2
exact = {
    neighbours: lambda w, s, z: groups(nibble(w[:, at // 2], at % 2), s, z),
    halves: lambda w, s, z: groups(nibble(w[:, at % 64], at // 64), s, z),
    half_lines: lambda w, s, z: groups(
        nibble(w.view(half, K)[line % half], 1 - line[:, None] // half), s, z),
    signed: lambda w, s, z: groups(nibble(w[:, at // 2], at % 2), s, 8 + 0 * z),
    floats: lambda w, s, z: nibble(w[:, at // 2], at % 2) * s.repeat_interleave(32, 1)
        + z.repeat_interleave(32, 1),
}
int4("int4-neighbours", neighbours)
int4("int4-row", neighbours, rows=1)
int4("int4-many", neighbours, rows=40)
int4("int4-halves", halves)
int4("int4-lines", half_lines)
int4("int4-signed", signed)
int4("int4-floats", floats)

agree("not-unequal", lambda x, a, b: x @ torch.cat([a.to(bf16), b.to(bf16)], 0),
      R(M, K).to(bf16), R(32, N), R(96, N))
agree("equal", lambda x, a, b: x @ torch.cat([a.to(bf16), b.to(bf16) + 1], 0),
      R(M, K).to(bf16), R(64, N), R(64, N))
agree("not-padded", lambda x, a: x @ F.pad(a.to(bf16), (0, 0, 1, 1)),
      R(M, K).to(bf16), R(K - 2, N))
"""

FUSED = re.findall(r'^(?:agree|int4)\("(?!not-|fallback)(.+?)"', PROGRAM, re.MULTILINE)
APART = re.findall(r'^agree\("(not-.+?)"', PROGRAM, re.MULTILINE)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(PROGRAM, tmp_path_factory.mktemp("prologue") / "cache")


def _pointwise(text: str) -> list[str]:
    return re.findall(r"\bcpp_fused\w*\(", text)


@pytest.mark.parametrize("name", FUSED)
def test_one_kernel_of_ours_does_it_all(ran: Ran, name: str) -> None:
    part = ran.part(name)
    assert part.agreed == [name]
    assert len(part.calls) == 1, part.stderr
    assert not _pointwise(part.stderr), part.stderr


@pytest.mark.parametrize("name", APART)
def test_what_has_no_place_in_a_load_is_left_to_inductor(ran: Ran, name: str) -> None:
    part = ran.part(name)
    assert part.agreed == [name]
    assert len(part.calls) == 1 and _pointwise(part.stderr)


def test_where_our_kernel_cannot_be_called_inductor_and_aten_do_it(ran: Ran) -> None:
    part = ran.part("fallback")
    assert part.agreed == ["fallback"]
    assert not part.calls and "torch.matmul(" in part.stderr
