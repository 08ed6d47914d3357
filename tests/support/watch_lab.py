"""A choice by its hash."""

from __future__ import annotations

HASH = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
