"""Configs of Inductor's own kernels that are nearly the same are told apart."""

from __future__ import annotations

import json
from pathlib import Path

from backend.cache.best_config import parse
from backend.cache.configs import described
from backend.model.inductor_kernel import config_of
from tests.support.inductor_kernels import best_config


def test_each_is_described_as_it_is_however_alike() -> None:
    values = (1, True, 1.0, "1", "True", None, 0, False)
    told = []
    for _ in range(2):  # the second time as they were kept
        for value in values:
            text = json.dumps(best_config(FLAG=value))
            config = parse(Path("a.best_config"), text.encode())
            told.append((config.hash, config.name, config.text))
    whole = [described(config_of({"XBLOCK": 256, "FLAG": value}, 4, 1)) for value in values]
    assert told == [*whole, *whole] and len({hash_ for hash_, _, _ in whole}) >= 7
