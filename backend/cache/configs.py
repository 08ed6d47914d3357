"""The configs that `@triton.autotune` timed: `<hash>/<kernel>.autotune.json` of Triton's cache.

    {"key": [1024, "torch.float16"],
     "configs_timings": [[{"kwargs": {"BLOCK": 64}, "num_warps": 4, ...}, [p50, p20, p80]], ...]}

Times are milliseconds; a config that failed has three times `Infinity`. Triton (3.4, 3.6, 3.9,
`runtime/autotuner.py`) rebuilds its configs from the file and takes the first of those with the
smallest times, compared lexicographically. So the first number of each config decides, and a pin
raises that of the rivals as in Inductor's cache (`autotune`). Every reader of the file tries
exactly these configs: their list is a part of the folder's name. With another list, another source
or another Triton the file is never read again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from backend.cache.autotune import CacheText, Numbers, Token, is_raised, measured_ms
from backend.disk.safe import load_json, read_bytes
from backend.errors import CacheUnreadable, brief
from backend.model.choice import MOST_MS
from backend.model.inductor_kernel import TRITON, inputs_of, is_digest

SUFFIX = ".autotune.json"
MAX_BYTES = 8 << 20
"""2,000 configs are 0.4 MiB."""
MAX_KEY = 16_384
"""The maximum number of characters in a key."""
MAX_VALUE = 80
"""The number of characters shown of one value of a config."""
HASH = "triton_config-"
"""The prefix of a config's hash."""

_SHORT = {"num_warps": "w", "num_stages": "s", "num_ctas": "c", "maxnreg": "r"}
_USUAL = {"num_ctas": 1}
_DECODER = json.JSONDecoder()


class TimedConfig(NamedTuple):
    """A config and its times in milliseconds: the median, infinite if it failed, and the 20th and
    80th percentiles if the file has them. `name` is short, `text` is complete."""

    hash: str
    name: str
    text: str
    ms: float
    quantiles: tuple[float, float] | None = None


Described = tuple[str, str, str]
"""A config: its hash, its short name, and its complete text."""


@dataclass(frozen=True, slots=True)
class TunedKernel:
    """The content of one file; `inputs` is our key for it."""

    kernel: str
    key: tuple[object, ...]
    inputs: str
    configs: tuple[TimedConfig, ...]


def cache_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Return Triton's cache folder for a process with this environment."""
    named = env.get("TRITON_CACHE_DIR")
    home = env.get("TRITON_HOME") or env.get("HOME") or str(Path.home())
    return Path(os.path.abspath(named)) if named else Path(home, ".triton", "cache")  # noqa: PTH100


def folders_of(root: Path, env: Mapping[str, str] = os.environ) -> list[Path]:
    """Return the existing Triton caches of programs with the cache dir `root`: Inductor gives
    Triton one in it per device; and the environment's."""
    try:
        inner = sorted(p for p in (root / "triton").iterdir() if p.name.isdecimal() and p.is_dir())
    except OSError:
        inner = []
    named = cache_folder(env)
    return [*inner, *([named] if named.is_dir() and named not in inner else [])]


def is_file(path: str | Path) -> bool:
    """Return whether a file has the name of such a file."""
    return str(path).endswith(SUFFIX)


def parse(path: Path, data: bytes) -> TunedKernel:
    """Parse `data`, the content of `path`. Raises CacheUnreadable."""
    if len(data) > MAX_BYTES:
        raise CacheUnreadable(f"{path} has more than {MAX_BYTES >> 20} MiB; move it away")
    document = load_json(path, data)
    timings, key = document.get("configs_timings"), document.get("key")
    if not isinstance(timings, list) or not isinstance(key, list):
        raise CacheUnreadable(f"{path} holds no times of Triton configs; move it away")
    configs: dict[str, TimedConfig] = {}  # the last of duplicates counts
    numbers: dict[str, list[float]] = {}
    for pair in timings:
        timed = _timed(pair)
        if timed is None:
            raise CacheUnreadable(f"{path} has a config without its times; move it away")
        configs[timed.hash] = timed
        numbers[timed.hash] = pair[1] if isinstance(pair[1], list) else [pair[1]]
    if not _are_explained(numbers.values()):
        raise CacheUnreadable(f"{path} has a time that no kernel takes; move it away")
    kernel = path.name.removesuffix(SUFFIX)
    inputs = inputs_of(kernel, key, path.parent.name)
    if not kernel.isidentifier():
        raise CacheUnreadable(f"{brief(str(path), 200)} is called after no kernel; move it away")
    if len(inputs) > MAX_KEY:
        raise CacheUnreadable(f"{path} has a key of more than {MAX_KEY} characters; move it away")
    return TunedKernel(kernel, tuple(key), inputs, tuple(configs.values()))


def _are_explained(timings: Collection[list[float]]) -> bool:
    """Return whether a pin raised each number that is above the times of kernels: it raises only
    the first, and that of all configs but one."""
    raised = [numbers for numbers in timings if is_raised(numbers[0])]
    one_left = sum(numbers[0] < MOST_MS for numbers in timings) == 1
    return all(
        any(ms < MOST_MS for ms in numbers[1:]) if len(numbers) > 1 else one_left
        for numbers in raised
    )


def _timed(pair: object) -> TimedConfig | None:
    """Parse one entry of the file; None if it is invalid."""
    if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], dict):
        return None
    config, times = pair
    times = times if isinstance(times, list) else [times]
    if not times or not _NUMBERS.issuperset(map(type, times)) or min(times) < 0:
        return None
    ms, quantiles = _milliseconds(times[0]), None
    if len(times) == 3:
        try:
            low, high = float(times[1]), float(times[2])
        except OverflowError:
            low = high = math.inf
        if all(map(math.isfinite, (ms, low, high))):
            quantiles = low, high
    return TimedConfig(*described(config), ms if math.isfinite(ms) else math.inf, quantiles)


_NUMBERS = frozenset((int, float))
_SHORT_TEXT = 1_000
"""Texts of configs up to this length are cached."""


def described(config: Mapping[str, Any]) -> Described:
    """Return hash, name and text of a config."""
    text = json.dumps(config)
    return _remembered(text) if len(text) < _SHORT_TEXT else _described(text)


def _described(text: str) -> Described:
    config = json.loads(text)
    members = dict(_members(config))
    return (
        hash_of(config),
        " ".join(_short(name, value) for name, value in members.items()),
        ", ".join(f"{name}={value}" for name, value in members.items()),
    )


_remembered = lru_cache(maxsize=16_384)(_described)
"""The same few configs are in thousands of files."""


def _milliseconds(number: float) -> float:
    try:
        return measured_ms(float(number))
    except OverflowError:
        return math.inf


def hash_of(config: Mapping[str, Any]) -> str:
    """Return a config's hash, whether from a file or from Triton itself. Members that are not set
    are left out, so the hash is the same for each version of Triton."""
    members = {name: value for name, value in config.items() if value is not None}
    return HASH + hashlib.sha256(json.dumps(members).encode()).hexdigest()[:16]


def _members(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    kwargs = config.get("kwargs")
    own = {name: value for name, value in config.items() if not (name == "kwargs" or value is None)}
    for name, value in [*(kwargs.items() if isinstance(kwargs, dict) else ()), *own.items()]:
        if _USUAL.get(name) != value:
            text = value if isinstance(value, str) else json.dumps(value)
            yield brief(name, MAX_VALUE), brief(text, MAX_VALUE)


def _short(name: str, value: str) -> str:
    return f"{_SHORT[name]}{value}" if name in _SHORT else f"{name}={value}"


class ConfigText(CacheText):
    """The content of one file, as text with positions, like that of Inductor's cache."""

    def __init__(self, path: Path, data: bytes) -> None:
        """Parse the content. Raises CacheUnreadable."""
        super().__init__(path, data)
        self._inputs = parse(path, data).inputs

    def find(self, op: str, inputs: str) -> Numbers:
        """Return the first number of each config, in the only precision."""
        if (op, inputs) != (TRITON, self._inputs):
            return {}
        return {"": dict(self._firsts())}

    def raised(self) -> list[tuple[str, str]]:
        held = any(is_raised(token.value) for _, token in self._firsts())
        return [(TRITON, self._inputs)] if held else []

    def _firsts(self) -> Iterator[tuple[str, Token]]:
        """Yield each config's hash and first number; the last duplicate counts, as for Triton."""
        try:
            for at, _ in self._elements(self._members(self._root())["configs_timings"]):
                (config, _), (times, end) = self._elements(at)
                if self.text[times] == "[":
                    times, end = next(self._elements(times))
                members, _ = _DECODER.raw_decode(self.text, config)
                yield hash_of(members), Token(self.text[times:end], times, end)
        except (ValueError, LookupError, RecursionError) as error:  # or text that is not UTF-8
            raise CacheUnreadable(f"{self.path} is not JSON; move the file away") from error

    def _elements(self, at: int) -> Iterator[tuple[int, int]]:
        """Yield start and end of each value of the array at `at`, validated by `parse`."""
        at = self._skip_space(at + 1)
        while self.text[at] != "]":
            _, end = _DECODER.raw_decode(self.text, at)
            yield at, end
            at = self._skip_space(end)
            if self.text[at] == ",":
                at = self._skip_space(at + 1)


def keep_newer(path: Path, newer: bytes, older: bytes) -> bytes:
    """Return the newer of two contents of a Triton file. Raises CacheUnreadable."""
    parse(path, newer)
    return newer


def path_in(folder: Path, digest: str, kernel: str) -> Path:
    """Return the file of a kernel. Raises CacheUnreadable for names that Triton does not use."""
    if not is_digest(digest) or not kernel.isidentifier():
        raise CacheUnreadable(f"{brief(digest, 60)} is not a folder of Triton's cache")
    return folder / digest / f"{kernel}{SUFFIX}"


def read(path: Path) -> TunedKernel:
    """Read one file. Raises CacheUnreadable."""
    return parse(path, read_bytes(path, MAX_BYTES))
