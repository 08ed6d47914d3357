"""The hashes that one Triton choice has on the devices of a box.

The hash of a Triton template's choice ends in the key of its module, and the module's text names
the device that it was generated for: `DeviceProperties(type='cuda', index=0, ...)`. The same kernel
therefore has one hash on each device, while the autotune cache files all of them under one op and
inputs. The key is a SHA-256 of the module's text and of the template's arguments:

    'c' + base32(sha256(text.strip() + b'||' + b'BLOCK_K=32-...-num_stages=3-num_warps=4-'))[:51]

The text also has the arguments, as `NAME : tl.constexpr = VALUE` and in the decorator, so the key
for another device can be computed. The method is checked for each module: unless it reproduces the
key that the module is stored under, the choice's variants are unknown.

Checked with torch 2.11, 2.13 and 2.14 (`torch/_inductor/select_algorithm.py`: `make_extra`,
`hash_key`; `codecache.py`: `code_hash`, `write`). With compile-on-one-rank the index is `None` on
all devices. Choices of ATen, C++, Composable Kernel, subgraphs and of our own templates have no
device in their hashes. Modules are read as text; nothing is imported or run.

Times that one device measured can be written for the others of its kind (`for_devices`). Stock
PyTorch on another device then finds a time for each of its choices, benchmarks nothing and takes
the same kernel. Call `write_modules` first, since only a choice's module shows which device its
hash is for, and write the measured times and these in one operation (`journal.Tuned`).
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from backend.cache.code import code_hash, digest_in, read_file
from backend.disk import safe
from backend.model.origin import is_own, kind_of

MAX_MODULE = 1 << 20
"""The maximum bytes of a template's module."""
DEVICES = range(8)
"""The devices assumed in a box that does not show more."""
MAX_INDEX = 1023
"""The highest name of a folder in `triton` that is a device's index."""

_DEVICE = re.compile(rb"(DeviceProperties\(type='\w{1,20}', index=)(None|\d{1,4})(?=, )")
_PROPERTIES = re.compile(rb"DeviceProperties\(type='\w{1,20}', index=[^,]{1,4}, ([^()]{0,2000})\)")
_PROPERTY = re.compile(r"(\w{1,60})=('[^']{0,200}'|[^,]{1,60})")
_CONSTANT = re.compile(r"^[ \t]*(\w{1,200}) : tl\.constexpr = ([^\n]{0,400})$", re.MULTILINE)
_LAUNCH = re.compile(
    r"\bnum_stages=(\d{1,4}),\s{0,200}num_warps=(\d{1,4})"
    r"(?:,.{0,20000}?num_consumer_groups=(\d{1,4}),\s{0,200}num_buffers_warp_spec=(\d{1,4}))?",
    re.DOTALL,
)
_NOT_ARGUMENTS = {"INDEX_DTYPE"}
"""Constants that Inductor adds to the template's."""


@dataclass(frozen=True, slots=True)
class DeviceModule:
    """The module of a Triton choice, generated for the device `index` (None: for any device)."""

    text: bytes
    extra: bytes
    index: int | None

    def text_on(self, index: int | None) -> bytes:
        """Return the module's text for the device `index`."""
        return _DEVICE.sub(rb"\g<1>" + str(index).encode(), self.text)

    def key(self, index: int | None) -> str:
        """Return the module's key for the device `index`."""
        return code_hash(self.text_on(index).strip() + b"||" + self.extra)

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the device, without its index, as texts by name."""
        match = _PROPERTIES.search(self.text)
        text = "" if match is None else match[1].decode("utf-8", "replace")
        return dict(_PROPERTY.findall(text))


@dataclass(slots=True)
class ChoiceVariants:
    """Maps choice hashes across the devices of a box, from the modules in a cache dir `root`. Each
    module is read once: its name is a hash of its content."""

    root: Path
    _modules: dict[str, DeviceModule | None] = field(default_factory=dict)

    def device(self, choice: str) -> int | None:
        """Return the index of the device that `choice` was generated for; None if its hash is the
        same on all devices, or if that is unknown."""
        module = self.module(choice)
        return None if module is None else module.index

    def is_known(self, choice: str) -> bool:
        """Return whether the hashes of `choice` on other devices are known."""
        return not may_differ(choice) or self.module(choice) is not None

    def on(self, choice: str, index: int) -> str:
        """Return the hash of the same kernel on the device `index`; `choice` if it has no other, or
        the other is unknown."""
        module = self.module(choice)
        if module is None or module.index is None:
            return choice
        digest = digest_in(choice) or ""
        return choice.replace(digest, module.key(index))

    def identity(self, choice: str) -> str:
        """Return the name of the kernel on every device of a kind: its hash on device 0."""
        return self.on(choice, 0)

    def all(self, choice: str, devices: Iterable[int]) -> dict[int, str]:
        """Return the hash of the same kernel on each of `devices`."""
        return {index: self.on(choice, index) for index in devices}

    def by_device(self, choices: Iterable[str]) -> dict[int | None, list[str]]:
        """Group `choices` by the device that they were generated for; None for choices that are the
        same on all devices. With only one device, all belong to it."""
        split: dict[int | None, list[str]] = {}
        for choice in choices:
            split.setdefault(self.device(choice), []).append(choice)
        return split

    def module(self, choice: str) -> DeviceModule | None:
        """Return the module of `choice`; None if it is missing, or no device is in its hash."""
        if not may_differ(choice):
            return None
        digest = digest_in(choice)
        if digest is None:
            return None
        module = self._modules.get(digest)
        if module is None:  # a missing one may have been written since
            module = self._modules[digest] = read_module(self.root, digest)
        return module


def read_module(root: Path, key: str) -> DeviceModule | None:
    """Return the module `key` in the cache dir `root`; None if it is missing, names no device or
    several, or if its key cannot be computed from its text."""
    text = read_file(root / key[1:3] / f"{key}.py", MAX_MODULE)
    if text is None:
        return None
    indices = {match[2] for match in _DEVICE.finditer(text)}
    if len(indices) != 1:
        return None
    for extra in _extras(text.decode("utf-8", "replace")):
        if code_hash(text.strip() + b"||" + extra) == key:
            index = indices.pop()
            return DeviceModule(text, extra, None if index == b"None" else int(index))
    return None


def device_folders(root: Path) -> list[int]:
    """Return the devices that programs with the cache dir `root` compiled Triton kernels for:
    Inductor gives each its own folder."""
    try:
        names = [path.name for path in (root / "triton").iterdir()]
    except OSError:
        return []
    return sorted(int(name) for name in names if name.isdecimal() and int(name) <= MAX_INDEX)


def may_differ(choice: str) -> bool:
    """Return whether a choice may have another hash on another device."""
    return kind_of(choice) == "triton" and not is_own(choice)


def _extras(text: str) -> Iterator[bytes]:
    """Yield the texts that may have been hashed behind the module's: the arguments sorted by name,
    with the warp groups if Triton has them."""
    launch = _LAUNCH.search(text)
    if launch is None:
        return
    stages, warps, groups, buffers = launch.groups()
    constants = {k: v for k, v in _CONSTANT.findall(text) if k not in _NOT_ARGUMENTS}
    parts = [*_arguments(constants), f"num_stages={stages}", f"num_warps={warps}"]
    yield _joined(parts)
    if groups is not None:
        yield _joined([*parts, f"num_consumer_groups={groups}", f"num_buffers_warp_spec={buffers}"])


def _joined(parts: Iterable[str]) -> bytes:
    return ("-".join(parts) + "-").encode("utf-8", "surrogateescape")


def _arguments(constants: Mapping[str, str]) -> Iterator[str]:
    """Yield `NAME=repr(value)`. The text has `str(value)`, which differs only for strings."""
    for name in sorted(constants):
        text = constants[name]
        yield f"{name}={text if _is_plain(text) else repr(text)}"


def _is_plain(text: str) -> bool:
    """Return whether a value is a number, a boolean or None, whose `repr` is its `str`."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False
    return value is None or isinstance(value, bool | int | float)


Timings = Mapping[str, float]
"""Milliseconds by choice hash, infinite for a choice that failed."""


def for_devices(
    timings: Timings,
    variants: ChoiceVariants,
    devices: Iterable[int],
    cached: Timings = MappingProxyType({}),
) -> dict[str, float]:
    """Return the times to write for `devices`, by the hashes that the choices of `timings` have
    there. Failed choices are included; choices without a device in their hash are not.

    `cached` are the problem's times in the cache so far. A time that another device measured itself
    is kept. A time that equals the measuring device's previous one was copied from it, and is
    replaced.
    """
    times: dict[str, float] = {}
    for index in devices:
        for choice, ms in timings.items():
            there = variants.on(choice, index)
            if there in timings:
                continue
            if there not in cached or cached[there] == cached.get(choice):
                times[there] = ms
    return times


def write_modules(
    variants: ChoiceVariants, choices: Collection[str], devices: Iterable[int]
) -> None:
    """Write the modules of `choices` for `devices` into the cache dir, as Inductor writes them on
    these devices: same names, same texts, beside a folder for Triton's output. Existing files are
    kept. Raises UnsafePath and NotWritable."""
    root = variants.root
    modules = [module for choice in choices if (module := variants.module(choice)) is not None]
    own = [module for module in modules if module.index is not None]
    for index in devices if own else ():
        safe.make_folder(root, root / "triton" / str(index))
        for module in own:
            key = module.key(index)
            path = root / key[1:3] / f"{key}.py"
            if path.exists():
                continue
            safe.make_folder(root, path.parent)
            temporary = path.with_name(f".{key}.{os.getpid()}.tmp")
            safe.write_temporary(temporary, module.text_on(index), like=path, sync=False)
            safe.put_in_place(temporary, path)
