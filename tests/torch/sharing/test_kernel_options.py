"""Pins of flex attention as `kernel_options`: what the command prints, and that PyTorch's own
lowering, given it, generates a kernel with just that configuration."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from backend.disk.layout import Layout
from backend.disk.sessions import EventWriter
from backend.model.choice import Choice
from backend.model.events import ChoiceSelected, SessionStarted, TuningStarted
from backend.model.problem import TuningKey
from backend.model.session import Session
from backend.sharing.kernel_options import FlexChoice, kernel_options_of
from rocm_tui.ingest.follow.tailer import Tailer
from rocm_tui.ingest.records import Seen
from tests.support.places import ROOT
from tests.support.sharing_lab import BACKWARD, FORWARD, ROCM, eval_options
from tests.support.torch_models import child_env, tui
from tests.support.triton_lab import triton_python


class Compiler:
    """Stock PyTorch and Triton in a child, with a made up gfx942."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self._child = child

    def __call__(
        self, op: str, options: dict[str, Any], *, max_autotune: bool
    ) -> tuple[list[Choice], dict[str, str]]:
        """What is offered, and the parameters of the kernel in the generated code."""
        words = {
            "options": options,
            "queries": QUERIES[op],
            "max_autotune": max_autotune,
            "backward": "backward" in op,
        }
        answer = self._ask(words)
        (kernel,) = answer["kernels"]
        return _choices(answer), kernel

    def convolution(self, rows: int) -> list[Choice]:
        """What is offered."""
        return _choices(self._ask({"rows": rows}))

    def _ask(self, words: dict[str, Any]) -> Any:
        assert self._child.stdin and self._child.stdout
        print(json.dumps(words), file=self._child.stdin, flush=True)
        line = self._child.stdout.readline()
        assert line, "the compiler ended"
        return json.loads(line)


def _choices(answer: dict[str, Any]) -> list[Choice]:
    return [
        Choice(name, hash, 1.0 + at, description)
        for at, (name, hash, description) in enumerate(answer["offered"])
    ]


@contextmanager
def compiler(cache: Path, **more: str) -> Iterator[Compiler]:
    python = triton_python()
    errors = cache.with_suffix(".stderr")
    with errors.open("w") as stderr:
        child = subprocess.Popen(
            [python, "-W", "ignore", "-m", "tests.support.flex_program"],
            cwd=ROOT,
            env=child_env(cache, more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        try:
            yield Compiler(child)
        except AssertionError as error:
            raise AssertionError(errors.read_text()[-3000:]) from error
        finally:
            child.communicate(timeout=60)


QUERIES = {"flex_attention": 1024, "flex_attention_backward": 1024, "flex_decoding": 16}
"""The length of the query that makes each op."""


def tuned(config: dict[str, str]) -> dict[str, str]:
    """What is tuned of the parameters of a choice or of a kernel."""
    names = [*FORWARD, *BACKWARD]
    return {name: config[name] for name in names if name in config}


def spec(rows: int) -> str:
    sizes = (2, 8, rows, 64, 8 * rows * 64, rows * 64, 64, 1, 0)
    return f"('cuda', 'torch.bfloat16', {', '.join(map(str, sizes))})"


def tuned_cache(root: Path, offered: dict[str, list[Choice]]) -> dict[str, TuningKey]:
    """The cache dir of a machine where these were timed, and its session."""
    layout = Layout(root)
    layout.autotune.mkdir(parents=True, exist_ok=True)
    keys = {
        op: TuningKey(op, f"[{spec(QUERIES[op])}, {spec(1024)}, {spec(1024)}]", "highest")
        for op in offered
    }
    cache = {
        op: {keys[op].inputs: {"highest": {c.hash: c.ms for c in choices}}}
        for op, choices in offered.items()
    }
    system = {"device": {"name": "gfx942"}, "version": {"hip": "7.1.25424"}, "hash": "cafe"}
    (layout.autotune / "cafe").write_text(json.dumps({"system": system, "cache": cache}))
    session = Session("s1", "gpu7", 7, torch="2.13.0", system_hash="cafe", started=1.7e9)
    writer = EventWriter(layout, session)
    writer.write(SessionStarted(session))
    for n, (op, key) in enumerate(keys.items(), 1):
        choices = tuple(offered[op])
        started = TuningStarted(n, 1.7e9, op, key.inputs, "highest", (), (), (), "cuda", choices)
        writer.write(started)
        writer.write(ChoiceSelected(n, 1.7e9, choices[0].hash or "", "timing", 1.0, 1.0))
    writer.close()
    return keys


@pytest.mark.torch
def test_pytorch_generates_just_the_pinned_kernel(tmp_path: Path) -> None:
    """What is pinned is not what Inductor takes unasked. It is the one configuration that is left
    with the options, with `max_autotune` and without. All of it is done twice: for each op by
    itself, and with the options of the forward and the backward in one dict."""
    root = tmp_path / "cache"
    pinned: dict[str, Choice] = {}
    with compiler(tmp_path / "torch") as compiled:
        offered = {op: compiled(op, {}, max_autotune=True)[0] for op in QUERIES}
        keys = tuned_cache(root, offered)
        for op, key in keys.items():
            _, stock = compiled(op, {}, max_autotune=False)
            unlike = [
                choice
                for choice in offered[op]
                if sum(stock[name] != text for name, text in tuned(choice.config).items()) > 1
                and choice.config["matrix_instr_nonkdim"] == "0"
            ]
            choice = pinned[op] = unlike[-1]
            tui(root, "pin", key.id, choice.hash or "")
            (options,) = eval_options(tui(root, "export", "--kernel-options", key.id).stdout)
            for max_autotune in (True, False):
                left, kernel = compiled(op, options, max_autotune=max_autotune)
                assert tuned(kernel).items() >= tuned(choice.config).items()
                assert len(left) == (len(offered[op]) if max_autotune else 1)
                assert all(tuned(each.config) == tuned(choice.config) for each in left)
        done = tui(root, "export", "--kernel-options", "--json")
        found = json.loads(done.stdout)
        ops = [{tuning["op"] for tuning in call["tunings"]} for call in found["calls"]]
        assert sorted(map(len, ops)) == [1, 2] and not found["left_out"]
        (both,) = (call["kernel_options"] for call in found["calls"] if len(call["tunings"]) > 1)
        for op in ("flex_attention", "flex_attention_backward"):
            _, kernel = compiled(op, both, max_autotune=False)
            assert tuned(kernel).items() >= tuned(pinned[op].config).items()
    (note,) = found["notes"]
    assert note["id"] == keys["flex_attention_backward"].id
    assert "matrix_instr_nonkdim=0 cannot be an option" in note["note"] and done.stderr


@pytest.mark.torch
def test_what_the_lowering_does_with_keys(tmp_path: Path) -> None:
    """Why `BLOCK_M` has no prefix: with one, decoding takes blocks of more rows than there are,
    and leaves the check of them out. And what the list for ROCm writes over."""
    with compiler(tmp_path / "torch") as compiled:
        _, prefixed = compiled("flex_decoding", {"fwd_BLOCK_M": 128}, max_autotune=False)
        _, plain = compiled("flex_decoding", {"BLOCK_M": 128}, max_autotune=False)
        over = {"kpack": 2, "matrix_instr_nonkdim": 16, "waves_per_eu": 2}
        _, kernel = compiled("flex_attention", over, max_autotune=False)
    assert (prefixed["BLOCK_M"], prefixed["SAFE_M_BOUNDARY"]) == ("128", "True")
    assert (plain["BLOCK_M"], plain["SAFE_M_BOUNDARY"]) == ("128", "False")
    assert {name: kernel[name] for name in ROCM} == ROCM


@pytest.mark.torch
def test_the_log_of_pytorch_gives_the_fastest(tmp_path: Path) -> None:
    """The file that PyTorch writes has all choices with their times; the options come from it."""
    log, root = tmp_path / "flex.json", tmp_path / "cache"
    named = {"TORCHINDUCTOR_FLEX_ATTENTION_LOGGING_FILE": str(log)}
    with compiler(tmp_path / "torch", **named) as compiled:
        offered = {op: compiled(op, {}, max_autotune=True)[0] for op in QUERIES}
    listed = json.loads(tui(root, "ls", "--json", str(log)).stdout)["tunings"]
    rows = {row["op"]: row["choices"] for row in listed}
    for op, choices in offered.items():
        told = [(choice["ms"], tuned(choice["config"])) for choice in rows[op]]
        assert told == [(choice.ms, tuned(choice.config)) for choice in choices]
    done = tui(root, "export", "--kernel-options", "--fastest", "--from", str(log))
    first, second = sorted(eval_options(done.stdout), key=len)
    best = {
        op: kernel_options_of(FlexChoice("", op, "", "", c[0].config)) for op, c in offered.items()
    }
    assert first == best["flex_decoding"]
    assert second == {**best["flex_attention"], **best["flex_attention_backward"]}


@pytest.mark.torch
def test_the_log_of_convolutions_is_followed_as_pytorch_writes_it(tmp_path: Path) -> None:
    log = tmp_path / "conv.json"
    tailer, seen = Tailer(str(log)), []
    with compiler(tmp_path / "torch", TORCHINDUCTOR_CONV_LOGGING_FILE=str(log)) as compiled:
        for rows in (28, 14):
            offered = compiled.convolution(rows)
            assert len(offered) > 2
            (told,) = [each.tuning for each in tailer.poll() if isinstance(each, Seen)]
            assert told.shapes == ((8, 64, rows, 28), (128, 64, 3, 3))
            assert [choice.ms for choice in told.choices] == [choice.ms for choice in offered]
            for choice, real in zip(told.choices, offered, strict=True):
                names = {"BLOCK_M", "BLOCK_N", "num_warps", "num_stages"} & {*real.config}
                assert {n: choice.config[n] for n in names} == {n: real.config[n] for n in names}
            seen.append(told.op)
    assert seen == ["convolution"] * 2


def test_nothing_to_export(tmp_path: Path) -> None:
    done = tui(tmp_path, "export", "--kernel-options", code=1)
    assert "no flex attention is pinned" in done.stderr and not done.stdout
    tui(tmp_path, "export", "--kernel-options", "--lookup-table", code=2)
    tui(tmp_path, "export", "--fastest", code=2)
