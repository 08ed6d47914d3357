"""How tables begin, of those that are known by the same words to whoever looks."""

from __future__ import annotations

import re

HIPBLASLT = re.compile(
    rb"Git Version:[^\n]{0,200}\n|hipBLASLt version: \d|(?:\[\d{1,6}\]:?)?\s*transA,transB,"
)
MIOPEN = re.compile(
    rb"\d{1,9}(?:-\d{1,9}){2,3}-\d{1,9}(?:x\d{1,9}){1,2}-[\dx-]{5,120}-N[A-Zc]{2,5}[^=\n]{4,80}="
    rb"|[23]x(?:-?\d{1,9}x){20}N[A-Zc]{2,5}\d?x[A-Z0-9x]{2,40}x[FBW]="
)
SQLITE = b"SQLite format 3\0"
