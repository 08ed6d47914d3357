"""Records as bytes for another process of ours, which makes them again by calling their types: for
frozen dataclasses that takes a third of what `pickle` takes by itself."""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable
from dataclasses import MISSING, Field, fields
from operator import attrgetter
from typing import Any

from backend.model.choice import Choice
from backend.model.tuning import Seconds, Tuning
from rocm_tui.ingest.records import Seen

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def _default(field: Field[Any]) -> object:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _reducer(kind: type) -> Callable[[Any], Reduced]:
    """Makes of an instance its type and the arguments that give it again, without those behind
    that are what they would be anyway."""
    places = [field for field in fields(kind) if field.init and not field.kw_only]
    named = [field for field in fields(kind) if field.init and field.kw_only]
    values = attrgetter(*[field.name for field in places])
    defaults = [_default(field) for field in places]

    def reduce(thing: Any) -> Reduced:
        arguments = values(thing)
        end = len(arguments)
        while end and arguments[end - 1] == defaults[end - 1]:
            end -= 1
        others = {
            field.name: value
            for field in named
            if (value := getattr(thing, field.name)) != _default(field)
        }
        if others:
            return _with_names, (kind, others, *arguments[:end])
        return kind, arguments[:end]

    return reduce


def _with_names(kind: type, others: dict[str, Any], *arguments: Any) -> Any:
    return kind(*arguments, **others)


class Packer(pickle.Pickler):
    """Of what there is most of."""

    dispatch_table = copyreg.dispatch_table | {
        kind: _reducer(kind) for kind in (Seen, Tuning, Choice, Seconds)
    }
