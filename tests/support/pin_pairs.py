"""Drawn pairs of a pin and a program: the program compiles, calls the pinned choice if it offers
it, and else its own best.

    PYTHONPATH=. python tests/support/pin_pairs.py CACHE_DIR --count 200 --seed 1 [--hooks]

runs on whatever torch that Python has. Programs share (op, inputs, precision) and differ in what
they offer there: threads, backends, activations, dynamic shapes. Each pair is a fork of a process
that has only imported torch; which choice is called is heard from the choice itself.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.cache.autotune import is_raised, read_caches
from backend.disk.layout import Layout
from backend.model.problem import TuningKey
from backend.pins.store import PinStore

Timings = dict[str, float]


@dataclass(frozen=True)
class Program:
    """A model's form with what decides which choices it offers."""

    form: str
    threads: int
    backends: str = "ATEN,CPP"


PROGRAMS = [
    *(Program("bmm", threads, backends) for threads in (1, 2) for backends in ("ATEN,CPP", "CPP")),
    *(Program("dynamic", threads) for threads in (1, 2)),
    *(Program("packed", threads) for threads in (1, 2)),
    *(Program(name, threads) for name in ("relu", "gelu", "sigmoid", "tanh") for threads in (1, 2)),
]


@dataclass(frozen=True)
class Outcome:
    """What a program did: (op, hash) of each choice that it called, or why it failed."""

    called: list[tuple[str, str]]
    failed: str = ""


@dataclass(frozen=True)
class Pair:
    key: TuningKey
    hash: str
    program: Program
    warm: bool
    """Whether the program had been compiled before the pin was made."""


def compile_program(program: Program) -> list[tuple[str, str]]:
    """Compile and run it in this process; the choices that it calls."""
    import torch
    from torch._inductor import config
    from torch.nn import functional as F

    torch.set_num_threads(program.threads)
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    called = _listen()
    with config.patch(
        max_autotune=True, freezing=True, max_autotune_gemm_backends=program.backends
    ):
        if program.form in ("bmm", "dynamic"):
            a, b = torch.randn(4, 32, 64), torch.randn(4, 64, 96)
            dynamic = True if program.form == "dynamic" else None
            got = torch.compile(lambda a, b: torch.bmm(a, b) + 1, dynamic=dynamic)(a, b)
            want = torch.bmm(a, b) + 1
        else:
            bf16 = program.form != "packed"
            layer = torch.nn.Linear(64, 96).to(torch.bfloat16 if bf16 else torch.float32).eval()
            after = getattr(F, program.form, torch.clone)
            x = torch.randn(32, 64, dtype=layer.weight.dtype)
            got, want = torch.compile(lambda x: after(layer(x)))(x), after(layer(x))
    assert (got - want).abs().max().item() < 0.05
    return called


def _listen() -> list[tuple[str, str]]:
    """Each choice's `output_node` is called when it is the one."""
    from torch._inductor import ir, select_algorithm

    called: list[tuple[str, str]] = []

    def hear(kind: Any) -> None:
        stock = kind.output_node

        def output_node(self: Any) -> Any:
            called.append((str(self.name), str(self.hash_key())))
            return stock(self)

        kind.output_node = output_node

    import torch._inductor.codegen.cpp_template_kernel as cpp

    for kind in (select_algorithm.ExternKernelCaller, cpp.CppTemplateCaller):
        hear(kind)
    assert issubclass(cpp.CppTemplateCaller, ir.ChoiceCaller)
    return called


def forked(action: Callable[[], Any], noise: Path) -> Outcome:
    """`action` in a fork, its stderr in `noise`."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        out = os.open(noise, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(out, 1)
        os.dup2(out, 2)
        code = 0
        try:
            result = json.dumps(action())
        except BaseException:
            result, code = json.dumps(traceback.format_exc()[-1500:]), 1
        os.write(write, result.encode())
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        said = stream.read()
    _, status = os.waitpid(child, 0)
    if status or not said:
        return Outcome([], json.loads(said) if said else f"ended with status {status}")
    return Outcome([(name, hash_) for name, hash_ in json.loads(said)])


class Field:
    """One cache dir in which all programs have tuned, and what each of them offers there."""

    def __init__(self, root: Path, programs: Sequence[Program], hooks: bool) -> None:
        self.layout = Layout(root)
        self.programs = list(programs)
        self.hooks = hooks
        self.noise = root.parent / "noise"
        self.offered: dict[Program, dict[TuningKey, Timings]] = {}
        documents: dict[str, dict[str, Any]] = {}
        for program in self.programs:
            alone = Path(tempfile.mkdtemp(prefix="alone-", dir=root.parent))
            outcome = self.run(program, alone, hooks=False)
            if outcome.failed:  # torch 2.8 writes C++ for dynamic shapes that g++ refuses
                print(f"left out, stock PyTorch alone fails: {program}: {outcome.failed[-200:]!r}")
                shutil.rmtree(alone)
                continue
            files, _ = read_caches(Layout(alone))
            self.offered[program] = {k: dict(t) for f in files for k, t in f.entries.items()}
            for file in files:
                merged = documents.setdefault(file.system_hash, {})
                _merge(merged, json.loads(file.path.read_bytes()))
            # Compiled C++ kernels are kept for the pairs.
            for folder in alone.iterdir():
                if folder.is_dir() and len(folder.name) == 2:
                    shutil.copytree(folder, root / folder.name, dirs_exist_ok=True)
            shutil.rmtree(alone)
        self.layout.autotune.mkdir()
        for name, document in documents.items():
            (self.layout.autotune / name).write_text(json.dumps(document, indent=4))
        self.base = {path: path.read_bytes() for path in self.layout.autotune.iterdir()}

    def run(self, program: Program, cache: Path, hooks: bool) -> Outcome:
        def action() -> list[tuple[str, str]]:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
            if hooks:
                import backend

                assert backend.activate()
            return compile_program(program)

        return forked(action, self.noise)

    def draw(self, random_: random.Random, apart: bool) -> Pair:
        """A pair whose program does not offer what is pinned if `apart`, where there is one."""
        pairs = (self._drawn(random_) for _ in range(100))
        pair = next((p for p in pairs if self.is_apart(p) == apart), None)
        return pair or self._drawn(random_)

    def is_apart(self, pair: Pair) -> bool:
        return pair.hash not in self.offered[pair.program][pair.key]

    def _drawn(self, random_: random.Random) -> Pair:
        program = random_.choice([p for p in self.programs if self.offered.get(p)])
        key = random_.choice(sorted(self.offered[program], key=str))
        measured = self.measured(key)
        choices = sorted(name for name, ms in measured.items() if ms < float("inf"))
        return Pair(key, random_.choice(choices), program, random_.random() < 0.5)

    def measured(self, key: TuningKey) -> Timings:
        files, _ = read_caches(self.layout)
        return dict(next(f.entries[key] for f in files if key in f.entries))

    def check(self, pair: Pair) -> str:
        """Pin, run the program, unpin; what went wrong, or nothing."""
        self.reset()
        if pair.warm:
            self.run(pair.program, self.layout.root, self.hooks)
        pins = PinStore(self.layout)
        measured = self.measured(pair.key)
        pins.pin(None, pair.key, pair.hash)
        rivals = [name for name, ms in self.numbers(pair.key).items() if is_raised(ms)]
        if pair.hash in rivals or len(rivals) != sum(ms < 1e9 for ms in measured.values()) - 1:
            return f"raised: {rivals}"
        outcome = self.run(pair.program, self.layout.root, self.hooks)
        if outcome.failed:
            return outcome.failed
        offered = self.offered[pair.program][pair.key]
        own = min(offered, key=lambda name: measured[name])
        wanted = pair.hash if pair.hash in offered else own
        called = {hash_ for _, hash_ in outcome.called if hash_ in measured}
        stale = pair.warm and not outcome.called
        if stale and pair.hash in offered:
            was = min(offered, key=lambda name: measured[name])
            if was != pair.hash:
                return "a warm graph hid the pin"
        elif not stale and called != {wanted}:
            return f"called {called}, not {wanted}"
        states = [status.state for status in PinStore(self.layout).reconcile()]
        if states not in (["active"], ["unproven"]):
            return f"the pin is {states}"
        pins.unpin(pair.key)
        if any(path.read_bytes() != data for path, data in self.base.items()):
            return "unpin did not give the file back"
        return ""

    def numbers(self, key: TuningKey) -> Timings:
        """As they stand in the file."""
        for path in self.base:
            found = json.loads(path.read_bytes())["cache"].get(key.op, {}).get(key.inputs, {})
            if key.precision in found:
                return dict(found[key.precision])
        raise KeyError(key)

    def reset(self) -> None:
        for name in ("fxgraph", "aotautograd", "rocm_tui"):
            shutil.rmtree(self.layout.root / name, ignore_errors=True)
        for path, data in self.base.items():
            path.write_bytes(data)


def _merge(into: dict[str, Any], other: dict[str, Any]) -> None:
    """As stock PyTorch adds the times of one program to those of another."""
    for name, value in other.items():
        if isinstance(value, dict) and isinstance(into.get(name), dict):
            _merge(into[name], value)
        else:
            into[name] = value


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cache_dir", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hooks", action="store_true", help="as under `rocm-tui run`")
    parser.add_argument("--forms", nargs="+", help="only these forms of a model")
    args = parser.parse_args(arguments)
    args.cache_dir.mkdir(parents=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(args.cache_dir)
    os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")
    import torch

    # What every fork needs; none of it starts a thread.
    import torch._dynamo
    import torch._inductor.compile_fx

    torch._dynamo.config.automatic_dynamic_shapes = False
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    programs = [p for p in PROGRAMS if not args.forms or p.form in args.forms]
    field = Field(args.cache_dir, programs, args.hooks)
    random_ = random.Random(args.seed)
    apart = failures = 0
    for at in range(args.count):
        pair = field.draw(random_, apart=at % 3 == 1)
        apart += field.is_apart(pair)
        wrong = field.check(pair)
        if wrong:
            failures += 1
            print(f"{pair}: {wrong}")
    print(
        json.dumps(
            {"torch": torch.__version__, "pairs": args.count, "apart": apart, "failures": failures}
        )
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
