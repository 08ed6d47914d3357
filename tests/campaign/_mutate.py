"""Inputs made wrong: bytes, lines, and, where a text is JSON, its values."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Mutator = Callable[[Random, bytes, Sequence[bytes]], bytes]
"""What it is made from, and the other seeds of that reader."""

MOST = 64 << 10
"""Bytes that a mutated input has at most; see `big` for others."""

WORDS = [
    *(b"\x1b[2J", b"\x1b]52;c;ZXZpbA==\x07", b"\x9b31m", "\u202e\u2066".encode(), b"\xed\xa0\x80"),
    *(b"\0", b"\r\n", b"\n", b"\t", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3", b"\\ud800", b"\\u0000"),
    *(b"inf", b"-inf", b"nan", b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-0.0", b"1e-400"),
    *(b"9" * 310, b"9" * 5000, b"-1", b"0", b"2147483648", b"18446744073709551616", b"1_0", b"0x1"),
    *(b"[" * 3000, b"(" * 3000, b"{" * 3000, b'{"a":' * 2000, b")" * 3000, b'"' * 999),
    *("\u0661\u0662".encode(), "\u00b2".encode(), b"%s%n", b"../../..", b"'", b'"', b"*" * 999),
    *(b"AUTOTUNE mm(", b"AUTOTUNE ", b" ms ", b"strides: [", b"dtypes: torch.", b"100.0%"),
    *(b"SingleProcess AUTOTUNE benchmarking takes ", b"Autotune Choices Stats:", b"mm("),
    *(b'{"num_choices": ', b"]" * 3000, b","),
    *(b"\t}", b"\t{", b'{"chromium_event"', b"V1120 10:10:29.070000 6512 a.py:1] {", b'{"event":"'),
    *(b"def call(", b"AsyncCompile()\n", b"class a(torch.nn.Module):\n", b"    return "),
    *(b"rand_strided((", b"reinterpret_tensor(", b"extern_kernels.mm(", b"# Graph fragment:\n"),
    *(b"__CLANG_OFFLOAD_BUNDLE__", b"\x7fELF", b"AMDGPU\0\0", b"\xdf\xff\xff\xff\xff"),
]  # fmt: skip

ODD: list[Callable[[], Any]] = [
    *(lambda v=v: v for v in (None, True, False, 0, -1, 1, 2**31, 2**63, 2**64)),
    *(lambda v=v: v for v in (10**310, -(10**310), 10**30)),
    *(lambda v=v: v for v in (0.0, -0.0, 1e308, -1e308, 5e-324, 1e300, float("inf"), float("nan"))),
    *(lambda v=v: v for v in ("", "inf", "nan", "-inf", "NaN", "Infinity", "1e999", "x" * 3000)),
    *(lambda v=v: v for v in ("\x1b[2J", "\ud800", "\0", "\u202e", "a\nb", "../x", "1" * 400)),
    *(lambda v=v: v for v in ("(1, 2, 3)", "[1, 2]", "mm-1", "-", "cpu", "torch.float32", "[]")),
    *(list, dict, lambda: [[]], lambda: [None], lambda: {"": None}, lambda: {"a": {}}),
    *(lambda: [10**310, 10**310], lambda: [0, 0], lambda: [-1], lambda: [float("nan")]),
    lambda: [[10**310, 2], [2, 3]],
    lambda: list(range(2000)),
    lambda: {str(n): n for n in range(500)},
    lambda: DEEP,
]  # fmt: skip
DEEP = "<deep>"
"""Stands for what no JSON writer nests so deep."""


def mutated(random: Random, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds with one to four things wrong."""
    data = random.choice(seeds)
    for _ in range(random.choice((1, 1, 1, 2, 2, 4))):
        kind = random.choices((_values, _bytes, _fields), (5, 4, 1))[0]
        data = kind(random, data, seeds)[:MOST]
    return data


def big(random: Random, seeds: Sequence[bytes], size: int = 1 << 20) -> bytes:
    """About `size` bytes: one thing again and again, or one mutated input many times."""
    unit = random.choice((random.choice(WORDS), mutated(random, seeds)))[:MOST] or b"x"
    return mutated(random, seeds)[: random.randrange(2000)] + unit * (size // len(unit))


def _bytes(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    return random.choice(_BYTES)(random, data, seeds)


def _cut(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _drop(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    start, end = _stretch(random, data)
    return data[:start] + data[end:]


def _double(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    start, end = _stretch(random, data)
    return data[:end] + data[start:end] * random.choice((1, 1, 2, 50)) + data[end:]


def _splice(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    other = random.choice(seeds)
    return data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]


def _flip(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    found = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 8, 64)) if found else 0):
        found[random.randrange(len(found))] ^= 1 << random.randrange(8)
    return bytes(found)


def _noise(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    start, end = _stretch(random, data)
    return data[:start] + random.randbytes(min(end - start, 64)) + data[end:]


def _word(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    at = random.randrange(len(data) + 1)
    over = random.choice((0, 0, 1, 8))
    return data[:at] + random.choice(WORDS) * random.choice((1, 1, 1, 30)) + data[at + over :]


def _run(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """One byte again and again, somewhere: what a pattern may try from each of its places."""
    at = random.randrange(len(data) + 1)
    byte = random.choice((random.randbytes(1), data[at : at + 1] or b" ", b" ", b"a", b"1", b"("))
    return data[:at] + byte * random.choice((300, 3000, 30_000)) + data[at:]


def _number(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Another number in the place of one."""
    digits = [at for at, byte in enumerate(data) if 48 <= byte <= 57]
    if not digits:
        return _word(random, data, seeds)
    start = end = random.choice(digits)
    while end < len(data) and 48 <= data[end] <= 57:
        end += 1
    odd = (
        b"inf",
        b"nan",
        b"0",
        b"-1",
        b"1e999",
        b"9" * 310,
        b"9" * 5000,
        b"0.0",
        b"",
        b"4294967296",
    )
    return data[:start] + random.choice(odd) + data[end:]


def _lines(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """Lines in another order, again, away, of another file, or with other ends."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    at = random.randrange(len(lines))
    what = random.randrange(5)
    if what == 0:
        random.shuffle(lines)
    elif what == 1:
        lines[at:at] = [lines[at]] * random.choice((1, 3, 40))
    elif what == 2:
        del lines[at : at + random.choice((1, 1, 5))]
    elif what == 3:
        lines[at:at] = random.choice(seeds).splitlines(keepends=True)[:5]
    else:
        return data.replace(b"\n", random.choice((b"\r\n", b"\r", b"", b"\n\n", b"\x0b")))
    return b"".join(lines)


def _fields(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """A binary number of 2, 4 or 8 bytes that is none that was meant, mostly near the start."""
    width = random.choice((2, 4, 8))
    reach = random.choice((64, 256, len(data)))
    at = random.randrange(max(1, min(reach, len(data) - width + 1)))
    value = random.choice((0, 1, 2, 255, 256, 65535, len(data), 2**31, 2**32 - 1, 2**63, 2**64 - 1))
    order: Any = random.choice(("little", "big"))
    odd = (value & ((1 << 8 * width) - 1)).to_bytes(width, order)
    return data[:at] + odd + data[at + width :]


def _stretch(random: Random, data: bytes) -> tuple[int, int]:
    start = random.randrange(len(data) + 1)
    return start, min(len(data), start + random.choice((1, 2, 8, 64, 512, 8192)))


_BYTES = (
    _cut,
    _drop,
    _double,
    _splice,
    _flip,
    _noise,
    _word,
    _word,
    _number,
    _number,
    _lines,
    _run,
)


def _values(random: Random, data: bytes, seeds: Sequence[bytes]) -> bytes:
    """A value of a JSON text, or of a line that is one; bytes where there is none."""
    lines = data.split(b"\n") if data[:1] not in b"[{" or b'\n{"' in data else [data]
    at = random.randrange(len(lines))
    start = min((p for p in map(lines[at].find, (b"{", b"[")) if p >= 0), default=-1)
    try:
        document = json.loads(lines[at][max(start, 0) :])
    except (ValueError, RecursionError):
        return _bytes(random, data, seeds)
    if not isinstance(document, (dict, list)) or not document:
        return _bytes(random, data, seeds)
    _change(random, document)
    try:
        text = json.dumps(document, ensure_ascii=random.random() < 0.8)
    except (ValueError, RecursionError):
        return data
    deep = random.choice(("[" * 3000 + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000))
    text = text.replace(f'"{DEEP}"', deep)
    lines[at] = lines[at][: max(start, 0)] + text.encode("utf-8", "surrogatepass")
    return b"\n".join(lines)


def _change(random: Random, document: Any) -> None:
    """One thing in one of its nodes: any of them, but the deep ones as often as the shallow."""
    node = document
    while True:
        items = node.values() if isinstance(node, dict) else node
        inner = [item for item in items if isinstance(item, (dict, list)) and item]
        if not inner or random.random() < 0.25:
            break
        node = random.choice(inner)
    keys = list(node) if isinstance(node, dict) else list(range(len(node)))
    key, what = random.choice(keys), random.randrange(10)
    if what < 6:
        node[key] = random.choice(ODD)()
    elif what == 6:
        del node[key]
    elif what == 7:
        node[key] = node[random.choice(keys)]
    elif isinstance(node, dict):
        odd = random.choice(("", "\ud800", "\x1b", "(1, 2, 3)", "x" * 3000, "nan", "event", "a\nb"))
        node[odd] = node[key] if what == 8 else random.choice(ODD)()
    else:
        node[key:key] = [node[key]] * random.choice((1, 30, 300))
