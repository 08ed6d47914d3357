"""Compiled graphs made on a GPU, cut to what the reader looks at: `graphs_gpu/NAME.txt`.

`graphs_gpu/samples.json` says of each (made by stock PyTorch 2.11 with Triton 3.6 on an NVIDIA
H200) what was tuned and which choice the graph calls: `.a` was compiled with the measured times,
`.b` with another choice made the fastest. `modules.json` has the constants of some choices' own
modules. `python -m tests.support.graph_samples IN OUT` cuts further entries.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "graphs_gpu"

_KEPT = re.compile(
    r"^(?:async_compile = AsyncCompile\(\)|# Graph fragment:|#   %\w+ : .*call_function.*"
    r"|\w+ = async_compile\.\w+\(.*|num_(?:stages|warps)=\d+,|    \w+ : tl\.constexpr = .*"
    r"|class (?:Runner|\w+\(torch\.nn\.Module\)|<lambda>\(torch\.nn\.Module\)):.*|    def call\(.*"
    r"|def call\(.*|def get_args\(.*|compiled_module_main.*|    +(?:def forward|return ).*"
    r"| +(?:assert_size_stride|triton_|extern_kernels|cpp_).*| +\w+(?:: \"[^\"]*\")? = .*"
    r"|torch\._inductor\.config\.max_autotune.*)$"
)
_CONSTANT = re.compile(r"num_(?:stages|warps)=\d+,|    \w+ : tl\.constexpr = ")


@dataclass(frozen=True)
class Sample:
    """A graph, and one tuning: `called` is the choice that the graph calls for it, None if it does
    not hold the op; `rivals` are all choices."""

    name: str
    op: str
    inputs: str
    called: str | None
    rivals: tuple[str, ...]

    @property
    def data(self) -> bytes:
        return (FOLDER / f"{self.name}.txt").read_bytes()


def samples() -> list[Sample]:
    rows = json.loads((FOLDER / "samples.json").read_text())
    return [Sample(**{**row, "rivals": tuple(row["rivals"])}) for row in rows]


def cut(data: bytes) -> str:
    """The lines of an entry that say what it calls; what a kernel computes is left out."""
    text = data.decode("latin-1")
    start, end = text.find("AsyncCompile()\n"), text.find("inductor_provenance")
    lines: list[str] = []
    source = ""  # the kernel in whose source we are
    constants: set[str] = set()
    for line in text[text.rfind("\n", 0, start) + 1 : end].split("\n"):
        if "(torch.nn.Module):" in line:  # behind a few bytes of the pickle
            line = line[line.index("class ") :]
        if match := re.match(r"(\w+) = async_compile\.\w+\(", line):
            source, constants, line = match[1], set(), f"{match[0]}'{match[1]}', '''"
        elif source and line.startswith("''', device_str="):
            source = ""
            lines.append(line)
            continue
        elif source:
            # How a kernel that is no template's is launched tells nothing.
            if not source.startswith("triton_tem") or not _CONSTANT.match(line):
                continue
            if line in constants:  # again for each inner function
                continue
            constants.add(line)
        if _KEPT.match(line):
            lines.append(line)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(cut(Path(sys.argv[1]).read_bytes()))
