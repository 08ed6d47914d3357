"""The rules of the house hold in the real tree, and each reports what is planted against it."""

from __future__ import annotations

import pytest

from tests.support import house, import_graph
from tests.support.house import RULES, Rule


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_tree_follows(rule: Rule) -> None:
    assert rule(house.product()) == []


def planted(path: str, text: str) -> dict[str, list[str]]:
    """What each rule that reports anything reports when the tree has one more file."""
    assert path not in house.product()
    files = {**house.product(), path: text}
    return {rule.__name__: lines for rule in RULES if (lines := rule(files))}


VIOLATIONS: dict[str, list[tuple[str, str]]] = {
    "foreign_imports": [
        ("backend/measure/x.py", "def f():\n    import torch"),
        ("backend/model/x.py", "def f():\n    import torch"),
        ("backend/processes/x.py", "class C:\n    def f(self):\n        import torch.nn as nn"),
        ("backend/tables/x.py", "async def f():\n    from torch import nn"),
        ("backend/templates/x.py", "try:\n    import torch\nexcept ImportError:\n    pass"),
        ("backend/x.py", "if TYPE_CHECKING:\n    from torch import Tensor"),
        ("backend/cache/x.py", "import importlib\nimportlib.import_module('torch.nn')"),
        ("backend/cache/x.py", "from importlib import import_module as load\nload('torch')"),
        ("backend/cache/x.py", "import importlib as i\nNAME = 'torch'\ni.import_module(NAME)"),
        ("backend/pins/x.py", "torch = __import__('torch')"),
        ("rocm_tui/render/x.py", "import importlib as i\ni.import_module(f'torch.{x}')"),
        ("rocm_tui/hook_path/x.py", "import torch"),
        ("rocm_tui/x.py", "f = lambda: __import__('torch' + '.nn')"),
        ("backend/inductor/hip/x.py", "def f():\n    import numpy"),
        ("backend/worker/x.py", "from rich import box"),
        ("backend/worker/jobs/x.py", "def f():\n    from rocm_tui import harmless"),
        ("backend/toolchain/x.py", "import msgpack"),
        ("backend/disk/x.py", "import importlib\nimportlib.import_module('rocm_tui.say')"),
    ],
    "private_torch_names": [
        ("backend/inductor/hooks/x.py", "import torch\ntorch._dynamo.config.verbose = True"),
        ("backend/inductor/hooks/x.py", "def f():\n    import torch as t\n    t._inductor"),
        ("backend/inductor/hooks/x.py", "import torch\nt = torch\ntorch = t\nt._C"),
        ("backend/inductor/hooks/x.py", "import torch\nlib = torch.library\nlib._x()"),
        ("backend/inductor/hooks/x.py", "from torch import _inductor"),
        ("backend/inductor/hooks/x.py", "from torch import library as lib\nlib._x"),
        ("backend/inductor/hip/x.py", "import torch._inductor.config"),
        ("backend/inductor/hip/x.py", "import torch\ngetattr(torch, '_inductor')"),
        ("backend/inductor/hip/x.py", "import torch\nsetattr(torch.nn, '_x', 1)"),
        ("backend/inductor/triton/x.py", "import importlib\nimportlib.import_module('torch._C')"),
        ("backend/inductor/triton/x.py", "import sys\nsys.modules['torch._dynamo']"),
        ("backend/inductor/x.py", "import sys\nsys.modules.get('torch._dynamo.x')"),
        ("backend/inductor/torch_x.py", "import torch\ntorch.nn.Module._x"),
        ("backend/worker/x.py", "import torch\ndef f(a: torch._ops.OpOverload): ..."),
        ("backend/worker/x.py", "import torch\ntorch.__config__._x"),
        ("backend/worker/x.py", "import torch\ntorch.ops._x"),
    ],
    "stray_output": [
        ("rocm_tui/render/x.py", "import sys\nout = sys.stdout"),
        ("rocm_tui/render/x.py", "import sys as s\nw = s.stdout.write\nw('x')"),
        ("rocm_tui/render/x.py", "from sys import stdout\nstdout.write('x')"),
        ("rocm_tui/render/x.py", "from sys import stderr as e"),
        ("rocm_tui/render/x.py", "import os\nos.write(1, b'x')"),
        ("rocm_tui/render/x.py", "from os import write as w\nw(2, b'x')"),
        ("rocm_tui/render/x.py", "import os\nw = os.write\nw(1, b'x')"),
        ("rocm_tui/render/x.py", "import os\nERR = 2\nos.write(ERR, b'x')"),
        ("rocm_tui/tui/x.py", "import os\nos.fdopen(1, 'w')"),
        ("rocm_tui/tui/x.py", "import os\nos.dup2(3, 1)"),
        ("rocm_tui/tui/x.py", "import os\nos.writev(fd=2)"),
        ("rocm_tui/tui/x.py", "with open('/dev/stdout', 'w') as out:\n    pass"),
        ("rocm_tui/tui/x.py", "from pathlib import Path\nPath('/dev/tty').write_text('x')"),
        ("rocm_tui/tui/x.py", "open(1, 'w')"),
        ("rocm_tui/tui/x.py", "import sys\nsys.__stderr__.buffer.write(b'x')"),
        ("rocm_tui/tui/x.py", "import sys\ngetattr(sys, 'stdout')"),
        ("rocm_tui/tui/x.py", "import sys\nname = f()\ngetattr(sys, name)"),
        ("rocm_tui/cli/x.py", "def f(debug):\n    if debug:\n        print('x')"),
        ("rocm_tui/cli/x.py", "say = print"),
        ("rocm_tui/cli/x.py", "import builtins\nbuiltins.print('x')"),
        ("rocm_tui/cli/x.py", "from rich import print\nprint('x')"),
        ("rocm_tui/cli/x.py", "import sys\nsys.exit('x')"),
        ("rocm_tui/cli/x.py", "raise SystemExit(f'{x} y')"),
        ("rocm_tui/cli/x.py", "name = input('? ')"),
        ("rocm_tui/jobs/x.py", "import logging\nlogging.StreamHandler()"),
        ("rocm_tui/jobs/x.py", "import logging\nlogging.basicConfig()"),
        ("rocm_tui/jobs/x.py", "import subprocess, sys\nsubprocess.run([], stdout=sys.stderr)"),
        ("rocm_tui/say_x.py", "print('x')"),
        ("backend/cache/x.py", "def f():\n    print('x')"),
        ("backend/inductor/hooks/x.py", "import traceback\ntraceback.print_exc()"),
        ("backend/worker/x.py", "import os\nos.write(1, b'x')"),
        ("backend/demo_x.py", "def main():\n    print('x')"),
    ],
    "arrows": [
        ("backend/cache/x.py", "from backend.pins import store"),
        ("backend/cache/x.py", "def f():\n    from backend.worker.problem import x"),
        ("backend/cache/x.py", "if TYPE_CHECKING:\n    import backend.inductor.guard"),
        ("backend/cache/x.py", "import importlib\nimportlib.import_module('backend.pins.store')"),
        ("backend/model/x.py", "from backend.processes import tree"),
        ("backend/x.py", "from backend.model import pin"),
        ("rocm_tui/render/x.py", "from rocm_tui.actions import pin"),
        ("rocm_tui/tui/x.py", "from rocm_tui.cli import entry"),
        ("rocm_tui/render/x.py", "from ..tui import app"),
        ("rocm_tui/x.py", "from rocm_tui.session import row"),
        ("rocm_tui/new_room/x.py", ""),
    ],
    "ambiguous_classes": [
        ("backend/cache/x.py", "class Measurement: ..."),
        ("rocm_tui/render/x.py", "class Tuning: ..."),
        ("rocm_tui/x.py", "if x:\n    class Choice: ..."),
        ("rocm_tui/x.py", "try:\n    pass\nexcept OSError:\n    class Choice: ..."),
    ],
    "uncounted_numbers": [
        ("rocm_tui/render/x.py", "f'{len(x)} choices'"),
        ("rocm_tui/render/x.py", "f'{n:,} graphs.'"),
        ("backend/toolchain/x.py", "f'{n} kernel(s)'"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "path", "text"),
    [(rule, path, text) for rule, cases in VIOLATIONS.items() for path, text in cases],
)
def test_a_violation_is_reported_by_its_rule_alone(rule: str, path: str, text: str) -> None:
    reported = planted(path, text)
    assert [*reported] == [rule]
    assert path in reported[rule][0] or path.split("/")[1] in reported[rule][0]


NEAR_MISSES = [
    ("backend/inductor/x.py", "def f():\n    import torch\n    torch.__version__"),
    ("backend/worker/x.py", "import torch\ntorch.nn.Module.__init__"),
    ("backend/worker/x.py", "import torch\ntorch.ops.aten._grouped_mm(a, b)"),
    ("backend/inductor/torch/x.py", "import torch._inductor\ntorch._dynamo"),
    ("backend/inductor/x.py", "from backend.inductor import torch\ntorch._x"),
    ("backend/inductor/x.py", "import sympy\nsympy._x"),
    ("backend/cache/x.py", "from importlib.util import find_spec\nfind_spec('torch')"),
    ("backend/cache/x.py", "import sys\n'torch' in sys.modules\nTEXT = 'import torch'"),
    ("backend/cache/x.py", "import jinja2, sympy, filelock, json\nimport triton.language as tl"),
    ("rocm_tui/render/x.py", "import rich.text, textual, torch_like"),
    ("rocm_tui/render/x.py", "import sys\nsys.stdout.isatty()\nsys.stderr.flush()\nsys.stdin"),
    ("rocm_tui/render/x.py", "import os\nos.write(fd, b'1')\nos.write(3, b'x')\nos.isatty(1)"),
    ("rocm_tui/render/x.py", "import os\nos.dup(0)\nopen('1')\nopen(path, 'w', 1)\nprinter(1)"),
    ("rocm_tui/render/x.py", "process.stdout.read()\nself.stderr.write('x')\nx.print()"),
    ("rocm_tui/render/x.py", "class Tail:\n    print: int = 0\n    def input(self): ..."),
    ("rocm_tui/cli/x.py", "import sys\nsys.exit(2)\nsys.exit(main())\nraise SystemExit(code)"),
    ("rocm_tui/cli/x.py", "import traceback\ntraceback.format_exc()\nsay.out('print(1)')"),
    ("backend/demo_x.py", '"""`print` to sys.stdout, or to /dev/stdout."""'),
    ("backend/pins/x.py", "from backend.cache import code\nfrom backend import counted"),
    ("rocm_tui/cli/x.py", "from rocm_tui.tui import app\nfrom rocm_tui import say"),
    ("rocm_tui/hook_path/x.py", "import backend.inductor.guard"),
    ("backend/cache/x.py", "class OnlyHere: ...\nclass _Layout: ..."),
    (
        "backend/cache/x.py",
        "class OnlyHere:\n    class Tuning: ...\ndef f():\n    class Tuning: ...",
    ),
    ("rocm_tui/render/x.py", "f'{counted(n, \"choice\")}, {n} of all choices, {MANY} choices'"),
]


@pytest.mark.parametrize(("path", "text"), NEAR_MISSES)
def test_a_near_miss_is_not_reported(path: str, text: str) -> None:
    assert planted(path, text) == {}


def test_a_circle_is_reported() -> None:
    """Also one that a function or a type check puts off."""
    one = {"backend/model/x.py": "def f():\n    from backend.model import y"}
    two = {"backend/model/y.py": "if TYPE_CHECKING:\n    from backend.model.x import f"}
    assert house.arrows({**house.product(), **one}) == []
    (line,) = house.arrows({**house.product(), **one, **two})
    assert line.startswith("circle: ") and "backend/model/x.py" in line


def test_an_exception_that_nothing_needs_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    files = house.product()
    monkeypatch.setitem(house.IMPORT_TORCH, "backend/errors.py", "a reason")
    monkeypatch.setitem(house.OUTPUT, "backend/errors.py::f", "a reason")
    monkeypatch.setitem(house.ALWAYS_MANY, ("backend/errors.py", "files"), "a reason")
    monkeypatch.setitem(import_graph.BESIDE, ("backend.model", "backend.processes"), "a reason")
    monkeypatch.setattr(house, "AMBIGUOUS", house.AMBIGUOUS | {"Unheard"})
    rules = (rule for rule in RULES if rule is not house.private_torch_names)
    assert [len(rule(files)) for rule in rules] == [1] * 5


def test_an_exception_covers_its_function_alone() -> None:
    place = "rocm_tui/cli/work.py::LiveLine._write"
    assert house.is_within(place, place) and house.is_within(f"{place}.inner", place)
    assert not house.is_within(f"{place}_x", place)
    assert not house.is_within("rocm_tui/cli/work.py::LiveLine", place)
    assert house.is_within("rocm_tui/say.py::out", "rocm_tui/say.py")
    assert not house.is_within("rocm_tui/say.pyi::out", "rocm_tui/say.py")
