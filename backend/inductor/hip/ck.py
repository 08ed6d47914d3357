"""Composable Kernel's universal GEMM as choices of ours, from the package `ck4inductor`, which has
its headers and a list of instances.

An instance takes a minute to compile. So none is offered unless `ROCM_TUI_CK` says how many are to
be tried for a product.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backend.inductor.hip.caller import ROCmTemplateBuffer
from backend.inductor.hip.epilogue import Fused
from backend.inductor.hip.template import HipTemplate
from backend.inductor.torch.graph import Node
from backend.templates.ck import RenderedInstance, render_ck
from backend.templates.errors import ExpressionError
from backend.toolchain.headers import Headers
from backend.toolchain.target import Options

COUNT = "ROCM_TUI_CK"
"""The variable: how many instances are tried for a product."""

_COMPILE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Library:
    """What is installed: the instances, and how a source that calls one is compiled."""

    operations: tuple[Any, ...]
    options: Options

    @property
    def identity(self) -> str:
        """For a comment in a source: what it is compiled with beside what it says."""
        digests = " ".join(headers.digest[:16] for headers in self.options.headers)
        return f"{self.options.standard}, headers {digests}"


def wanted(env: Mapping[str, str] = os.environ) -> int:
    """How many instances are tried for a product."""
    given = env.get(COUNT, "")
    return int(given) if given.isdecimal() else 0


@functools.cache
def library() -> Library:
    """Raises ImportError where `ck4inductor` is not installed, and HeadersError."""
    package = importlib.import_module("ck4inductor")
    instances = importlib.import_module("ck4inductor.universal_gemm.gen_instances")
    home = Path(str(package.__file__)).parent
    folders = [home / "include", home / "library" / "include"]
    headers = tuple(Headers.of(folder) for folder in folders if folder.is_dir())
    options = Options(headers=headers, standard="c++20", timeout_seconds=_COMPILE_SECONDS)
    return Library(tuple(instances.gen_ops_library()), options)


class ROCmCKTemplate(HipTemplate):
    """A product by an instance of the library; configs are `CkConfig`."""

    template = "ck"

    def __init__(self, input_nodes: Sequence[Node], layout: Any, **options: Any) -> None:
        super().__init__(input_nodes, layout, **options)
        self.options = library().options

    @staticmethod
    def renders(*rendered: Any) -> RenderedInstance:
        return render_ck(library().identity, *rendered)

    def workspace_size(self, rendered: Any) -> Any:
        return 0

    def fuse(
        self, buffer: ROCmTemplateBuffer, nodes: Sequence[Any], removed: Iterable[str] = ()
    ) -> Fused:
        raise ExpressionError("an instance of a library stores its product and no more")
