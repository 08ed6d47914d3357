"""Problems in the files of `--from-log` other than Inductor's logs: products in other tuners'
tables and in hipBLASLt's lines, and exports of other machines."""

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
        """One line about the products that are not tuned, and why."""
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
    """Return `rows` of logs and the problems in files, each problem once.

    Its first row gets the calls of all. Problems that only occur in files come last, the most
    requested first; `make` makes them from a problem and its calls.
    """
    places: dict[tuple[object, ...], int] = {}
    asked = list(rows)
    for place, row in enumerate(rows):
        places.setdefault(_product(row.problem), place)
    only: dict[tuple[object, ...], tuple[Problem, float]] = {}
    for file in told:
        for problem, count in file.asks.problems.items():
            product = _product(problem)
            row_index = places.get(product)
            if row_index is not None:
                asked[row_index] = replace(asked[row_index], calls=asked[row_index].calls + count)
            else:
                first, before = only.get(product, (problem, 0.0))
                only[product] = first, before + count
    ranked = sorted(only.values(), key=lambda item: -item[1])
    return [*asked, *(make(problem, count) for problem, count in ranked)]


def _product(problem: Problem) -> tuple[object, ...]:
    """Return a key that is equal for equal products of different sources.

    A bias may or may not be expanded over the rows. The default precision is that of float32
    products.
    """
    shapes, strides = problem.shapes, problem.strides
    if problem.op == "addmm" and shapes and len(strides) == len(shapes):
        shapes = (_spread(shapes[0], strides[0]), *shapes[1:])
        strides = (_spread(strides[0], strides[0]), *strides[1:])
    if not shapes or not strides:
        return (problem.op, problem.id, problem.options_text, problem.threads)
    precision = problem.precision if "torch.float32" in problem.dtypes else None
    where = problem.device == "cpu", problem.threads
    return (
        problem.op,
        shapes,
        strides,
        problem.dtypes,
        precision or "highest",
        problem.options_text,
        *where,
    )


def _spread(sizes: Shape, strides: Shape) -> Shape:
    return sizes[1:] if len(strides) == 2 and strides[0] == 0 else sizes
