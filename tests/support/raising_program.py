"""A program that compiles small models with one function of the hooks raising, for one after the
other: `python raising_program.py [--templates] POINT...` under `rocm-tui run`.

A point is `module:function` or `module:Class.method` below `backend.inductor`; `nothing` is none.
`=Interrupt` behind it raises KeyboardInterrupt. Each runs in a fork; those that run at `import
torch` or while Inductor is imported are forked before that. Prints a JSON object for each: how it
ended, whether the point was reached, stderr. `--replaced` prints first which methods of torch our
selectors replace. Needs no more than torch, so that any interpreter can run it.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

AUTOLOAD = ("hooks.activation:", "torch.versions:known")
FORCED = ("nothing", "hip.scheduling:", "hip.template:", "hip.caller:")
LINEAR = ("nothing", "hooks.selector:Selector._select")
EARLY = (
    *AUTOLOAD,
    "hooks.recording:Recorder.__init__",
    "hooks.pins:PinLookup.__init__",
    "torch.versions:",
)


def main(arguments: list[str]) -> None:
    templates = "--templates" in arguments
    points = [argument for argument in arguments if not argument.startswith("--")]
    import torch

    torch.set_num_threads(1)  # no other thread survives a fork
    early = [point for point in points if point.startswith(EARLY)]
    for point in early:
        _fork(point, templates)
    _warm_up(torch)
    if "--replaced" in arguments:
        print(json.dumps({"replaced": _replaced()}), flush=True)
    for point in points:
        if point not in early:
            _fork(point, templates)


def _warm_up(torch: ModuleType) -> None:
    """What every compile needs."""
    from torch._inductor import config

    config.compile_threads = 1
    config.fx_graph_cache = False
    torch.compile(lambda a: a * 2 + 1)(torch.ones(64))
    torch._dynamo.reset()


def _replaced() -> list[str]:
    """The names of torch that stand in a selector class of ours too, `__init__` aside."""
    from backend.inductor.hooks import templates as templates_on
    from backend.inductor.torch import tuning as torch_api

    stock = {*dir(torch_api.StockSelector), "preprocessing_fns", "system"}
    kinds = templates_on.TemplateSelector.__mro__
    ours = {name for k in kinds if k.__module__.startswith("backend.") for name in vars(k)}
    plain = {*dir(type("Plain", (), {})), "__firstlineno__", "__static_attributes__"}
    return sorted(ours & stock - (plain - {"__call__"}))


def _fork(point: str, templates: bool) -> None:
    sys.stdout.flush()
    begin = time.monotonic()
    with tempfile.TemporaryFile() as stderr:
        child = os.fork()
        if child == 0:
            os.dup2(stderr.fileno(), 2)
            _child(point, templates)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        stderr.seek(0)
        told = stderr.read().decode(errors="replace")
    seconds = round(time.monotonic() - begin, 1)
    reached = "== reached\n" in told
    lines = told.replace("== reached\n", "")
    print(
        json.dumps(
            {
                "point": point,
                "status": status,
                "reached": reached,
                "stderr": lines,
                "seconds": seconds,
            }
        )
    )
    sys.stdout.flush()


def _child(point: str, templates: bool) -> None:
    code = 1
    try:
        if point != "nothing":
            _let_raise(point)
        if point.startswith(AUTOLOAD):
            _load_again()
        _compile(templates, forced=point.startswith(FORCED))
        if point in LINEAR and not templates:
            _compile_linear()
        code = 0
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        import traceback

        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _load_again() -> None:
    """What `import torch` ends with, as if it had not been done."""
    import torch

    activation = importlib.import_module("backend.inductor.hooks.activation")
    activation._active = None
    sys.meta_path[:] = [f for f in sys.meta_path if type(f).__module__ != activation.__name__]
    torch._import_device_backends()  # type: ignore[no-untyped-call]


_WRAPPERS = (classmethod, staticmethod, property, functools.cached_property)
_RAISING = """
def raising(*args, **kwargs):
    if not reached:
        reached.append(1)
        os.write(2, b"== reached\\n")
    raise error
"""


def _let_raise(point: str) -> None:
    """Replace the function by one that raises, as if it stood in our package."""
    name, _, kind = point.partition("=")
    module_name, _, path = name.partition(":")
    module: Any = importlib.import_module(f"backend.inductor.{module_name}")
    *parents, last = path.split(".")
    holder = module
    for parent in parents:
        holder = getattr(holder, parent)
    error = KeyboardInterrupt() if kind else LookupError("injected")
    names: dict[str, Any] = {"os": os, "reached": [], "error": error}
    exec(compile(_RAISING, module.__file__, "exec"), names)
    stands = vars(holder)[last]
    wrap = type(stands) if isinstance(stands, _WRAPPERS) else lambda function: function
    replaced = wrap(names["raising"])
    setattr(holder, last, replaced)
    if isinstance(replaced, functools.cached_property):
        replaced.__set_name__(holder, last)


class _Version(NamedTuple):
    major: int
    minor: int
    micro: int


def _compile(templates: bool, forced: bool) -> None:
    """Tune a bmm that is new to the cache; if `forced`, then take one of ours, if it can be."""
    import torch
    from torch._inductor import config

    config.compile_threads = 1
    config.fx_graph_cache = False
    config.max_autotune = True
    cache = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    for known in (cache / "cache", cache / "rocm_tui" / "tuned"):
        shutil.rmtree(known, ignore_errors=True)
    if templates:
        config.max_autotune_gemm_backends = "ATEN"
    from torch._inductor import select_algorithm as select

    # Python 3.11.0 to 3.11.8 has a bug for which torch leaves precompiling out.
    select.sys = SimpleNamespace(**{**vars(sys), "version_info": _Version(3, 12, 0)})  # type: ignore[attr-defined]
    a, b = torch.randn(4, 32, 64), torch.randn(4, 64, 96)
    _agree(torch, lambda a, b: torch.relu(torch.bmm(a, b)), a, b)
    if templates and forced:
        _let_ours_win(select)
        _agree(torch, lambda a, b: torch.relu(torch.bmm(a, b)), a, b)


def _let_ours_win(select: ModuleType) -> None:
    if hasattr(select, "add_preprocessing_fn"):
        select.add_preprocessing_fn(
            lambda choices: [c for c in choices if c.name.startswith("rocm_")][:1] or choices
        )
    else:  # torch 2.8 asks nobody about the choices
        from backend.inductor.benchmark.request import ROCmBenchmarkRequest

        ROCmBenchmarkRequest.benchmark = lambda *args, **kwargs: 1e-9  # type: ignore[method-assign]


def _compile_linear() -> None:
    import torch
    from torch._inductor import config

    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU()).eval()
    with torch.no_grad(), config.patch(freezing=True):
        _agree(torch, model, torch.randn(16, 64))


def _agree(torch: ModuleType, function: Any, *inputs: Any) -> None:
    torch._dynamo.reset()
    want = function(*inputs)
    got = torch.compile(function)(*inputs)
    error = (got - want).abs().max().item()
    assert error < 1e-4, error


if __name__ == "__main__":
    main(sys.argv[1:])
