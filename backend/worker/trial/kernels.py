"""Which kernels a pass calls, from the wrapper that Inductor generated."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

_CALL = re.compile(
    r"""^\s*(?:[\w, ]+\ =\ )?(?:
        (?P<kernel>(?:triton|cpp|ck|cutlass|rocm|pallas|multi_kernel|combo|mps|halide)_\w+)
            (?:\.run)?\(
      | (?P<extern>extern_kernels\.\w+)\(
      | torch\.ops\.(?P<op>\w+\.\w+)(?:\.\w+)?\(
      | aoti_torch_(?P<shim>\w+)\(
    )""",
    re.VERBOSE,
)
_CHECKED = re.compile(r"^\s*AOTI_TORCH_ERROR_CODE_CHECK\((.*)$")
_CPP_CALL = re.compile(r"^\s*(?P<kernel>cpp_\w+|call_triton_\w+)\(")
_START = re.compile(
    r"^(?:class Runner|\s*def (?:call|partition_\d+)\(|void (?:inductor_entry_impl|run_impl)\()"
)
_NUMBER = re.compile(r"_\d+$")
_NO_KERNEL = re.compile(
    r"\w*(?:empty|reinterpret|assert|get_|delete|create_tensor|new_tensor_handle|"
    r"alloc_from_pool|device_type|dtype|grad_mode|data_ptr|alias|as_strided)\w*"
)
"""What a wrapper calls that runs nothing."""


def kernels_of(code: str) -> tuple[str, ...]:
    """The names of what a pass calls, in order: numbers at their ends are left out, since they say
    only which one of its kind it is."""
    return tuple(_called(code.splitlines()))


def _called(lines: Iterable[str]) -> Iterable[str]:
    inside = False
    for line in lines:
        if _START.match(line):
            inside = True
        elif line and not line[0].isspace() and not line.startswith(("}", "#")):
            inside = False
        if not inside:
            continue
        checked = _CHECKED.match(line)
        match = _CALL.match(checked[1] if checked else line) or _CPP_CALL.match(line)
        if match is None:
            continue
        named = match.groupdict()
        if named.get("kernel"):
            yield plain_name(named["kernel"])
        elif named.get("extern"):
            yield named["extern"]
        else:
            name = named.get("op") or named.get("shim") or ""
            if not _NO_KERNEL.fullmatch(name.rpartition(".")[2]):
                yield name


def plain_name(kernel: str) -> str:
    """`poi fused add gelu` of `triton_poi_fused_add_gelu_3`."""
    name = _NUMBER.sub("", kernel.removeprefix("call_")).removeprefix("triton_")
    return " ".join(part for part in name.split("_") if part)


def changed(first: Sequence[str], other: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What `first` alone calls, and what `other` alone does; `name x3` for three more of them."""
    before, after = Counter(first), Counter(other)
    return _listed(before - after), _listed(after - before)


def _listed(counts: Counter[str]) -> tuple[str, ...]:
    return tuple(name if count == 1 else f"{name} x{count}" for name, count in counts.items())
