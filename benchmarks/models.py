"""Models whose graphs are tuned: programs of stock PyTorch that know nothing of us.

    python benchmarks/models.py NAME [--steps 20] [--json]      compile it, call it, time its passes
    python benchmarks/models.py --list

Prints `step N` after each pass. With `--json` one object at the end: on a GPU the device time of a
pass, summed over its kernels by torch.profiler, three times, in microseconds; on a CPU the median
of the passes by the clock. Weights and inputs are drawn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Call = Callable[[], Any]


@dataclass(frozen=True)
class Program:
    """`make()` gives what is compiled and its arguments."""

    name: str
    make: Callable[[], tuple[Any, tuple[Any, ...]]]
    device: str = "cpu"
    training: bool = False
    freezing: bool = False


PROGRAMS: dict[str, Program] = {}


def program(name: str, **how: Any) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def register(make: Callable[[], Any]) -> Callable[[], Any]:
        PROGRAMS[name] = Program(name, make, **how)
        return make

    return register


# On a GPU: a llama-like model, a mixture of experts, a convolution net, of many rows and of few;
# layers of a vision transformer and of a speech decoder, a recommendation, a step of training.


class RMSNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return (wide * scale).to(x.dtype) * self.weight


class Block(nn.Module):
    """Norm, attention over `heads`, norm, a gated MLP."""

    def __init__(self, hidden: int, inner: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([RMSNorm(hidden), RMSNorm(hidden)])
        self.qkv = nn.ModuleList([nn.Linear(hidden, hidden, bias=False) for _ in range(3)])
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.gate = nn.Linear(hidden, inner, bias=False)
        self.up = nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, rows, hidden = x.shape
        y = self.norms[0](x)
        shape = batch, rows, self.heads, hidden // self.heads
        q, k, v = (layer(y).view(shape).transpose(1, 2) for layer in self.qkv)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=rows > 1)
        x = x + self.out(y.transpose(1, 2).reshape(batch, rows, hidden))
        y = self.norms[1](x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def llama(batch: int, rows: int) -> tuple[Any, tuple[Any, ...]]:
    with torch.device("cuda"):
        model = nn.Sequential(*(Block(4096, 11008, 32) for _ in range(4)))
    return _on_gpu(model), (_gpu_randn(batch, rows, 4096),)


class Experts(nn.Module):
    """A router, and `count` gated MLPs, each on as many rows as it has room for."""

    def __init__(self, hidden: int, inner: int, count: int) -> None:
        super().__init__()
        self.norm = RMSNorm(hidden)
        self.router = nn.Linear(hidden, count, bias=False)
        self.gate = nn.Parameter(torch.randn(count, hidden, inner) / hidden**0.5)
        self.up = nn.Parameter(torch.randn(count, hidden, inner) / hidden**0.5)
        self.down = nn.Parameter(torch.randn(count, inner, hidden) / inner**0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        count, room = self.gate.shape[0], max(1, 2 * y.shape[0] // self.gate.shape[0])
        weights = self.router(y).softmax(-1)
        top, rows = weights.transpose(0, 1).topk(room, dim=-1)
        taken = y[rows]
        z = F.silu(torch.bmm(taken, self.gate)) * torch.bmm(taken, self.up)
        z = torch.bmm(z, self.down) * top.unsqueeze(-1)
        return x.index_add(0, rows.reshape(-1), z.reshape(count * room, -1).to(x.dtype))


def moe(rows: int) -> tuple[Any, tuple[Any, ...]]:
    with torch.device("cuda"):
        model = nn.Sequential(*(Experts(2048, 4096, 8) for _ in range(2)))
    return _on_gpu(model), (_gpu_randn(rows, 2048),)


class Residual(nn.Module):
    """A bottleneck of three convolutions."""

    def __init__(self, size: int, inner: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(size, inner, 1), nn.BatchNorm2d(inner), nn.ReLU()),
            *(nn.Conv2d(inner, inner, 3, padding=1), nn.BatchNorm2d(inner), nn.ReLU()),
            *(nn.Conv2d(inner, size, 1), nn.BatchNorm2d(size)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.layers(x))


def conv(batch: int) -> tuple[Any, tuple[Any, ...]]:
    model = nn.Sequential(
        Residual(256, 64),
        Residual(256, 64),
        nn.Conv2d(256, 512, 1, stride=2),
        Residual(512, 128),
        Residual(512, 128),
    ).eval()
    images = _gpu_randn(batch, 256, 56, 56, dtype=torch.float16)
    model = model.to("cuda", torch.float16).to(memory_format=torch.channels_last)
    return model, (images.to(memory_format=torch.channels_last),)


class SelfAttention(nn.Module):
    """Attention over `heads`; one layer gives the queries, keys and values."""

    def __init__(self, size: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (_split(y, self.heads) for y in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(x.shape))


class CachedAttention(nn.Module):
    """Attention of one row to a cache of `positions`, to whose end it is written if it `grows`."""

    def __init__(self, batch: int, size: int, heads: int, positions: int, grows: bool) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = nn.ModuleList([nn.Linear(size, size) for _ in range(3 if grows else 1)])
        self.out = nn.Linear(size, size)
        for name in ("keys", "values"):
            cache = torch.randn(batch, heads, positions, size // heads)
            self.register_buffer(name, cache)
        self.register_buffer("place", torch.tensor([positions - 1]))

    def forward(self, x: Tensor) -> Tensor:
        q, *new = (_split(layer(x), self.heads) for layer in self.inputs)
        for cache, rows in zip((self.keys, self.values), new, strict=False):
            cache.index_copy_(2, self.place, rows)
        y = F.scaled_dot_product_attention(q, self.keys, self.values)
        return self.out(y.transpose(1, 2).reshape(x.shape))


def _split(x: Tensor, heads: int) -> Tensor:
    batch, rows, size = x.shape
    return x.view(batch, rows, heads, size // heads).transpose(1, 2)


def encoder(batch: int, rows: int) -> tuple[Any, tuple[Any, ...]]:
    with torch.device("cuda"):
        model = transformer(768, 4, lambda: SelfAttention(768, 12))
    inputs = _gpu_randn(batch, rows, 768, dtype=torch.float16)
    return _on_gpu(model, torch.float16), (inputs,)


def decoder(batch: int, rows: int, context: int) -> tuple[Any, tuple[Any, ...]]:
    """One step, with `rows` of its own and `context` rows of an encoder."""
    with torch.device("cuda"):
        model = transformer(
            1280,
            6,
            lambda: CachedAttention(batch, 1280, 20, rows, grows=True),
            lambda: CachedAttention(batch, 1280, 20, context, grows=False),
        )
    inputs = _gpu_randn(batch, 1, 1280, dtype=torch.float16)
    return _on_gpu(model, torch.float16), (inputs,)


class Tower(nn.Module):
    """An MLP of numbers and of the sums of bags of embeddings; a vector for each bag."""

    def __init__(self, numbers: int, bags: int, entries: int, size: int) -> None:
        super().__init__()
        tables = [nn.EmbeddingBag(entries, size, mode="sum") for _ in range(bags)]
        self.tables = nn.ModuleList(tables)
        sizes = numbers + bags * size, 1024, 512
        layers = [(nn.Linear(a, b), nn.ReLU()) for a, b in pairwise(sizes)]
        self.layers = nn.Sequential(*chain(*layers), nn.Linear(sizes[-1], bags * size))

    def forward(self, numbers: Tensor, bags: Tensor) -> Tensor:
        sums = [table(bags[at]) for at, table in enumerate(self.tables)]
        y = self.layers(torch.cat([numbers, *sums], -1))
        return y.view(len(y), len(sums), -1)


class Towers(nn.Module):
    """A score by the products of each vector of a user's tower with each of an item's."""

    def __init__(self, numbers: int, bags: int, entries: int, size: int) -> None:
        super().__init__()
        self.user, self.item = (Tower(numbers, bags, entries, size) for _ in range(2))
        self.score = nn.Linear(bags * bags, 1)

    def forward(self, user: Tensor, user_bags: Tensor, item: Tensor, item_bags: Tensor) -> Tensor:
        left, right = self.user(user, user_bags), self.item(item, item_bags)
        return self.score(torch.bmm(left, right.transpose(1, 2)).flatten(1))


def towers(batch: int) -> tuple[Any, tuple[Any, ...]]:
    numbers, bags, entries, room = 256, 8, 100_000, 16
    with torch.device("cuda"):
        model = Towers(numbers, bags, entries, 64)
        indices = [torch.randint(entries, (bags, batch, room)) for _ in range(2)]
    inputs = [_gpu_randn(batch, numbers) for _ in range(2)]
    return _on_gpu(model), (inputs[0], indices[0], inputs[1], indices[1])


class NextToken(nn.Module):
    """The loss of a language model with these layers."""

    def __init__(self, tokens: int, size: int, layers: nn.Module) -> None:
        super().__init__()
        self.embedding, self.layers = nn.Embedding(tokens, size), layers
        self.norm, self.out = nn.LayerNorm(size), nn.Linear(size, tokens, bias=False)

    def forward(self, text: Tensor, following: Tensor) -> Tensor:
        logits = self.out(self.norm(self.layers(self.embedding(text))))
        return F.cross_entropy(logits.flatten(0, 1).float(), following.flatten())


def training(batch: int, rows: int) -> tuple[Any, tuple[Any, ...]]:
    with torch.device("cuda"):
        layers = transformer(1024, 3, lambda: SelfAttention(1024, 16, causal=True))
        model = NextToken(16384, 1024, layers)
        text, following = torch.randint(16384, (2, batch, rows))
    return _on_gpu(model), (text, following)


def _on_gpu(model: nn.Module, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
    return model.to("cuda", dtype)


def _gpu_randn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


program("llama-prefill", device="cuda")(lambda: llama(4, 512))
program("llama-decode", device="cuda")(lambda: llama(8, 1))
program("moe-prefill", device="cuda")(lambda: moe(2048))
program("moe-decode", device="cuda")(lambda: moe(16))
program("conv-prefill", device="cuda")(lambda: conv(32))
program("conv-decode", device="cuda")(lambda: conv(1))
program("encoder", device="cuda")(lambda: encoder(16, 197))
program("decoder", device="cuda")(lambda: decoder(5, 448, 1500))
program("towers", device="cuda")(lambda: towers(4096))
program("training", device="cuda", training=True)(lambda: training(8, 512))

# On a CPU: small ones, of which each is tuned in seconds.

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
}


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Of (heads, rows, size), by products that are tuned."""
    scores = torch.bmm(q, k.transpose(1, 2)) * q.shape[-1] ** -0.5
    return torch.bmm((scores if mask is None else scores + mask).softmax(-1), v)


def _heads(heads: int, rows: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = (torch.randn(heads, rows, size) for _ in "qkv")
    return q, k, v


@program("attention")
def _() -> Any:
    return attention, _heads(8, 128, 64)


@program("attention-causal")
def _() -> Any:
    mask = torch.full((96, 96), -1e9).triu(1)
    return attention, (*_heads(8, 96, 32), mask)


@program("attention-long")
def _() -> Any:
    return attention, _heads(2, 384, 32)


@program("attention-training", training=True)
def _() -> Any:
    return attention, tuple(x.requires_grad_() for x in _heads(4, 128, 32))


class Grouped(nn.Module):
    """`count` MLPs side by side, which are products of batches."""

    def __init__(self, count: int, size: int, inner: int, activation: str) -> None:
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.up = nn.Parameter(torch.randn(count, size, inner) / size**0.5)
        self.down = nn.Parameter(torch.randn(count, inner, size) / inner**0.5)

    def forward(self, x: Tensor) -> Tensor:
        return torch.bmm(self.activation(torch.bmm(x, self.up)), self.down)


class Around(nn.Module):
    """A residual connection with a norm before what it goes around."""

    def __init__(self, size: int, inside: nn.Module) -> None:
        super().__init__()
        self.norm, self.inside = nn.LayerNorm(size), inside

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inside(self.norm(x))


class Heads(nn.Module):
    """Attention with its four linear layers."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.layers = nn.ModuleList([nn.Linear(size, size) for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        rows, size = x.shape
        *inputs, out = self.layers
        shape = rows, self.heads, size // self.heads
        q, k, v = (layer(x).view(shape).transpose(0, 1).contiguous() for layer in inputs)
        return out(attention(q, k, v).transpose(0, 1).reshape(rows, size))


class Quantized(nn.Module):
    """A linear layer whose weights are 8-bit integers with a scale for each output."""

    def __init__(self, size: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-127, 127, (outputs, size), dtype=torch.int8))
        self.register_buffer("scale", torch.rand(outputs) / 1270)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight.to(x.dtype)) * self.scale


def mlp(size: int, inner: int, activation: type[nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Linear(size, inner), activation(), nn.Linear(inner, size))


def transformer(size: int, layers: int, *attention: Callable[[], nn.Module]) -> nn.Module:
    """Each layer has the given kinds of attention, and an MLP."""
    blocks = [
        Around(size, inside())
        for _ in range(layers)
        for inside in (*attention, lambda: mlp(size, 4 * size, nn.GELU))
    ]
    return nn.Sequential(*blocks)


for _name in ACTIVATIONS:
    program(f"grouped-{_name}")(
        lambda name=_name: (Grouped(4, 64, 256, name), (torch.randn(4, 256, 64),))
    )
program("grouped-training", training=True)(
    lambda: (Grouped(4, 64, 128, "gelu"), (torch.randn(4, 128, 64),))
)
program("grouped-residual")(
    lambda: (Around(96, Grouped(2, 96, 192, "silu")), (torch.randn(2, 192, 96),))
)
program("residual-training", training=True)(
    lambda: (Around(64, Grouped(4, 64, 128, "relu")), (torch.randn(4, 96, 64),))
)
program("heads")(lambda: (Heads(128, 4), (torch.randn(160, 128),)))
program("transformer")(
    lambda: (transformer(128, 2, lambda: Heads(128, 4)), (torch.randn(128, 128),))
)
program("transformer-training", training=True)(
    lambda: (transformer(64, 1, lambda: Heads(64, 4)), (torch.randn(96, 64),))
)
program("mlp-gelu-frozen", freezing=True)(lambda: (mlp(256, 512, nn.GELU), (torch.randn(64, 256),)))
program("mlp-relu-frozen", freezing=True)(lambda: (mlp(256, 512, nn.ReLU), (torch.randn(32, 256),)))
program("mlp-silu-frozen", freezing=True)(lambda: (mlp(192, 384, nn.SiLU), (torch.randn(96, 192),)))
program("residual-frozen", freezing=True)(
    lambda: (Around(192, mlp(192, 384, nn.Tanh)), (torch.randn(48, 192),))
)
program("quantized-frozen", freezing=True)(
    lambda: (
        nn.Sequential(Quantized(256, 512), nn.ReLU(), Quantized(512, 256)),
        (torch.randn(64, 256),),
    )
)
program("transformer-frozen", freezing=True)(
    lambda: (transformer(128, 1, lambda: Heads(128, 4)), (torch.randn(64, 128),))
)

PROFILES, PASSES = 3, 20


def compiled_call(chosen: Program) -> Call:
    """One pass of the compiled program; of a training one forward and backward."""
    torch.manual_seed(0)
    function, arguments = chosen.make()
    if isinstance(function, nn.Module):
        function = function.requires_grad_(chosen.training).train(chosen.training)
    compiled = torch.compile(function, mode="max-autotune-no-cudagraphs", dynamic=False)

    def inference() -> Any:
        with torch.no_grad():
            return compiled(*arguments)

    def training() -> None:
        if isinstance(function, nn.Module):
            function.zero_grad()  # else each pass adds up gradients, outside the compiled graphs
        compiled(*arguments).sum().backward()

    return training if chosen.training else inference


def device_us(call: Call) -> float:
    """Of one pass, summed over its kernels."""
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(PASSES):
            call()
        torch.cuda.synchronize()
    return sum(event.self_device_time_total for event in profiler.key_averages()) / PASSES


def host_us(call: Call) -> float:
    times = []
    for _ in range(PASSES):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=sorted(PROGRAMS))
    parser.add_argument("--list", action="store_true", help="the names, and stop")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="print the time of a pass at the end")
    args = parser.parse_args()
    if args.list or args.name is None:
        print("\n".join(PROGRAMS))
        return
    chosen = PROGRAMS[args.name]
    if chosen.freezing:
        import torch._inductor.config as settings

        settings.freezing = True
    call = compiled_call(chosen)
    for step in range(args.steps):
        call()
        print(f"step {step}", flush=True)
    if args.json:
        timed = device_us if chosen.device == "cuda" else host_us
        print(json.dumps({"us": [timed(call) for _ in range(PROFILES)]}))


if __name__ == "__main__":
    main()
