"""Whether a compiled graph names files of the cache dir that it was compiled in.

Where PyTorch launches Triton kernels without Triton (`triton_bundler.StaticallyLaunchedAutotuner`),
a graph holds them with the whole paths of their generated code. Beside that code it looks for the
best config of each, and writes it there: in another cache dir those that have several configs are
tuned once more, and the path of the first one is made again. Where that cannot be made, PyTorch
logs an error and compiles the graph anew. Seen with torch 2.11 on an H200.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

_KERNELS = b"StaticallyLaunchedAutotuner"
_CODE = re.compile(rb"/[0-9a-z]{2}/c[2-7a-z]{51}\.py")
_BEFORE = re.compile(rb"[^\x00-\x1f\x7f-\xff\"']{0,4096}\Z")
_MOST_ROOT = 4096
_SHORT = 0x8C
"""The opcode of a text whose length is one byte."""


def other_root(data: bytes, root: Path) -> str | None:
    """The cache dir that a graph's kernels are in, where that is not `root`; what `data`, the
    content of the entry, says may be anything. None where there are none of them, or all are in
    `root`."""
    if _KERNELS not in data:
        return None
    ours = {str(root).encode(), str(root.resolve()).encode()}
    for code in _CODE.finditer(data):
        if not any(_ends_with(data, code, one) for one in ours):
            before = _BEFORE.search(data, max(0, code.start() - _MOST_ROOT), code.start())
            text = (before.group() if before else b"").decode()
            return posixpath.normpath(text[max(text.find("/"), 0) :])
    return None


def _ends_with(data: bytes, code: re.Match[bytes], root: bytes) -> bool:
    """Whether the path of `code` begins with `root`, and not before it: there stands what is no
    part of a path, or how long a short text is."""
    begin = code.start() - len(root)
    if begin < 2 or not data.startswith(root, begin):
        return False
    if data[begin - 2 : begin] == bytes((_SHORT, (code.end() - begin) & 255)):
        return True
    return not chr(data[begin - 1]).isalnum() and data[begin - 1] not in b"._-/+~@"
