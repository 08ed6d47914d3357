"""What the files of `--from-log` ask for that are no log of Inductor's: products in other tuners'
tables and in hipBLASLt's lines, and what another box exported."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from backend.counted import counted
from backend.disk.safe import open_regular
from backend.errors import CacheUnreadable, InputsKeyInvalid, ShareInvalid
from backend.model.choice import Choice
from backend.model.problem import Problem, Shape, parse_inputs_key
from backend.model.tuning import Tuning
from backend.sharing.share import FORMAT, SharedPin, read_share
from rocm_tui.errors import NoSuchSource
from rocm_tui.fleet.units import Asked
from rocm_tui.ingest.untuned import Asks, in_words, is_table, read_log, read_table
from rocm_tui.jobs.tune import NotTunable, problem_of


@dataclass(frozen=True, slots=True)
class Told:
    """`asks` of the file `path`; `is_log`: what Inductor says in it is still to be read."""

    path: str
    asks: Asks
    is_log: bool

    @property
    def left_out(self) -> str | None:
        """One line about what is not tuned of it, and why."""
        if not self.asks.left_out:
            return None
        count, lines = sum(self.asks.left_out.values()), self.asks.lines
        return f"{self.path}: {count} of {counted(lines, 'product')} left out: " + in_words(
            self.asks.left_out
        )


def told_by(paths: Iterable[str]) -> list[Told]:
    """Raises NoSuchSource for a damaged export, or a file that cannot be read to its end."""
    return [_told_by(path) for path in paths]


def _told_by(path: str) -> Told:
    file = Path(path)
    try:
        head = _head(file)
        if head is None:
            return Told(path, Asks(), True)  # who reads logs says what is the matter with it
        if FORMAT.encode() in head and head.lstrip().startswith(b"{"):
            return Told(path, _exported(read_share(file).pins), False)
        if is_table(file):
            return Told(path, read_table(file), False)
        return Told(path, read_log(file), True)
    except (CacheUnreadable, ShareInvalid) as error:
        raise NoSuchSource(str(error)) from error
    except OSError as error:
        raise NoSuchSource(f"cannot read {path}: {error.strerror}") from error


def _head(file: Path) -> bytes | None:
    try:
        with open_regular(file, follow=True) as stream:
            return stream.read(200)
    except (OSError, ValueError):
        return None


def _exported(pins: Sequence[SharedPin]) -> Asks:
    """Their problems; what was fastest there counts for nothing here."""
    asks = Asks()
    for pin in pins:
        try:
            problem = problem_of(_tuning(pin))
        except InputsKeyInvalid:
            asks.leave_out("an inputs key that cannot be read")
        except NotTunable:
            asks.leave_out("a kernel that needs its own program to run")
        else:
            asks.add(problem)
    return asks


def _tuning(pin: SharedPin) -> Tuning:
    hashes = dict.fromkeys((pin.hash, *(name for times in pin.timings.values() for name in times)))
    specs = parse_inputs_key(pin.inputs).specs if pin.inputs.startswith("[") else ()
    return Tuning(
        pin.op,
        tuple(spec.sizes for spec in specs),
        tuple(spec.strides for spec in specs),
        tuple(spec.dtype for spec in specs),
        specs[0].device if specs else None,
        pin.precision,
        pin.inputs,
        choices=tuple(Choice(hash=hash) for hash in hashes),
    )


def with_told(
    rows: Sequence[Asked],
    told: Sequence[Told],
    make: Callable[[Problem, float], Asked],
) -> list[Asked]:
    """`rows` of logs and what files ask for, a problem once: the first that tells of it gets the
    calls of all. What only files ask for comes behind, what is asked for most first, and is
    made of a problem and its calls."""
    places: dict[tuple[object, ...], int] = {}
    asked = list(rows)
    for place, one in enumerate(rows):
        places.setdefault(_product(one.problem), place)
    only: dict[tuple[object, ...], tuple[Problem, float]] = {}
    for file in told:
        for problem, count in file.asks.problems.items():
            product = _product(problem)
            known = places.get(product)
            if known is not None:
                asked[known] = replace(asked[known], calls=asked[known].calls + count)
            else:
                first, before = only.get(product, (problem, 0.0))
                only[product] = first, before + count
    ranked = sorted(only.values(), key=lambda item: -item[1])
    return [*asked, *(make(problem, count) for problem, count in ranked)]


def _product(problem: Problem) -> tuple[object, ...]:
    """The same for one product, whoever tells of it: a bias is spread over the rows or not yet. A
    precision that is not told is the one that float32 products have by themselves."""
    shapes, strides = problem.shapes, problem.strides
    if problem.op == "addmm" and shapes and len(strides) == len(shapes):
        shapes = (_spread(shapes[0], strides[0]), *shapes[1:])
        strides = (_spread(strides[0], strides[0]), *strides[1:])
    if not shapes or not strides:
        return (problem.op, problem.id, problem.told, problem.threads)
    told = problem.precision if "torch.float32" in problem.dtypes else None
    where = problem.device == "cpu", problem.threads
    return (problem.op, shapes, strides, problem.dtypes, told or "highest", problem.told, *where)


def _spread(sizes: Shape, strides: Shape) -> Shape:
    return sizes[1:] if len(strides) == 2 and strides[0] == 0 else sizes
