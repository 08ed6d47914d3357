"""Which format a file has, by its first bytes. Names are not looked at."""

from __future__ import annotations

import re

from rocm_tui.ingest.records import Format

HEAD = 16 << 10
"""Bytes that are enough to tell."""

_CACHE = re.compile(rb'\{\s*"(?:system|cache)"\s*:\s*\{')
_MM_LOG = re.compile(
    rb'\[\s*\{\s*"(?:\(|invoke"|input_shape"|weight_shape"|query_shape"|kernel_type")'
)
_EVENTS = re.compile(rb'\{"event"\s*:\s*"')
_TRACE = re.compile(rb"V\d{4} \d\d:\d\d:\d\d\.\d{3,9} \d+ [^\s:]{1,300}:\d+\] \{")
_OPENING = re.compile(rb'[\[{][\s\[{]*(?:"[\w(]{0,20})?\Z')
_TEXT_CONTROLS = b"\t\n\r\f\b\x1b"
_HOLE = re.compile(rb"\0{256,}")
"""What a log has where it was cut while a program wrote it."""
_CONTROLS = bytes(byte for byte in range(32) if byte not in _TEXT_CONTROLS)


def sniff(head: bytes) -> Format:
    """The format of a file that begins with `head`; `empty` if that is too little to tell.

    Text of no known format is a program's log: what it holds of ours may come later.
    """
    head = head[:HEAD].removeprefix(b"\xef\xbb\xbf")
    if not head.strip():
        return "empty"
    if _is_binary(head):
        return "binary"
    start = head.lstrip()
    if start.startswith(b"Validator,"):
        return "tunableop"
    if _EVENTS.match(start):
        return "event log"
    if _CACHE.match(start):
        return "autotune cache"
    if _MM_LOG.match(start):
        return "mm log"
    if _TRACE.match(start):
        return "torch trace"
    if _OPENING.match(start) or (b"\n" not in head and len(head) < HEAD):
        return "empty"
    return "stderr log"


def _is_binary(head: bytes) -> bool:
    """A NUL byte, or more control bytes than text has."""
    head = _HOLE.sub(b"", head)
    if b"\0" in head:
        return True
    odd = len(head) - len(head.translate(None, _CONTROLS))
    return odd * 20 > len(head) + 200
