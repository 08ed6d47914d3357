"""The boundary between our code and torch: if our code raises, the program is left to stock
PyTorch, with one line on its stderr.

Errors of stock PyTorch pass through unchanged, and so does anything that is not an `Exception`:
Ctrl-C ends what it would end without us. torch enters our code only in these places:

- at the end of `import torch`, and after four of its modules: `hooks/activation.py`;
- when it begins and ends to compile: `hooks/recording.py`;
- methods of its selector, each an `Entrance`, or a property or method with `beside` or `quietly` in
  it: `hooks/selector.py`, `hooks/lookup.py`, `hooks/templates.py`;
- methods of its tuner of Triton kernels, each with `beside` in it: `hooks/inductor_kernels.py`;
- methods of Triton's own tuner, each of which calls the stock method and observes it in `quietly`:
  `hooks/triton_autotune.py`;
- the compilation of a graph, with `beside` in it, and the call of a compiled graph, in a closure
  that only calls it, except for samples, which catch errors: `hooks/graphs.py`, `hooks/calls.py`;
- callbacks attached to its objects (`watch_...` in `torch/`): callers pass `shielded` functions;
- our choices and their buffers: `hip/caller.py`, which tries each before it is offered;
- its scheduling, which ours subclasses: `hip/scheduling.py`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import sysconfig
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from backend.errors import brief
from backend.processes.tree import from_a_handler

_OURS = f"{Path(__file__).parents[1]}/"
_LIBRARY = f"{sysconfig.get_paths()['stdlib']}/"
_INSTALLED = "site-packages"

_aside: str | None = None
_listeners: list[Callable[[], Callable[[str], None] | None]] = []


class Stock:
    """A method of stock PyTorch, and the outcome of its last call."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.returned = False
        self.result: Any = None
        self.error: BaseException | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.returned, self.error = False, None
        self.result = self.theirs(self._method, *args, **kwargs)
        self.returned = True
        return self.result

    def theirs(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function of torch or of the program: its errors are not our failures."""
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            self.error = error
            raise


def beside(method: Callable[..., Any], ours: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call `ours(stock, *args)`, where `stock` is the method that `ours` replaces.

    If `ours` raises, the hooks step aside, and the result is that of its call of `stock`, or, if it
    made none, of `stock(*args)`. An error with a true attribute `intended` is not a failure, nor is
    an error raised meanwhile by the program's signal handler.
    """
    if _aside is not None:
        return method(*args, **kwargs)
    stock = Stock(method)
    try:
        return ours(stock, *args, **kwargs)
    except Exception as error:
        pass_on_if_a_handlers(error)
        if is_intended(error) or (stock.error is error and not raised_by_us(error)):
            raise
        theirs = stock.error
        if theirs is not None and raised_by_us(theirs):
            theirs = None
        step_aside(error)
    finally:
        # The error refers to this frame: a cycle would keep its frames' tensors alive until the
        # next garbage collection.
        stock.error = None
    if theirs is not None:
        try:
            _raise_as_it_was(theirs)
        finally:
            del theirs
    if stock.returned:
        return stock.result
    return method(*args, **kwargs)


def _raise_as_it_was(error: BaseException) -> NoReturn:
    """Raise the error again, whatever is being handled there."""
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context
        del error, context


class Entrance:
    """A method of torch's in a class of ours: a call runs `ours(stock, ...)`, through `beside`.
    `ours` is the name of another method of the class."""

    def __init__(self, ours: str) -> None:
        self._ours = ours

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object | None, kind: type) -> Callable[..., Any]:
        holder = kind if instance is None else instance
        stock = getattr(super(self._owner, holder), self._name)
        return functools.partial(beside, stock, getattr(holder, self._ours))


def step_aside(error: Exception) -> None:
    """Leave everything to stock PyTorch from now on; reported once per process."""
    global _aside
    if _aside is not None:
        return
    _aside = f"the hooks failed with {failure_text(error)}"
    say_once(f"{_aside}, and step aside: the program goes on under stock PyTorch, unrecorded")
    for held in tuple(_listeners):
        listener = held()
        if listener is not None:
            with quietly("stepping aside"):
                listener(_aside)


def when_aside(listener: Callable[[str], None]) -> None:
    """Call `listener` with the reason when the hooks step aside, if its object still lives."""
    held = weakref.WeakMethod(listener) if inspect.ismethod(listener) else lambda: listener
    _listeners[:] = [reference for reference in _listeners if reference() is not None]
    _listeners.append(held)


def is_aside() -> bool:
    """Return whether the hooks have stepped aside."""
    return _aside is not None


_failed: set[str] = set()


@contextlib.contextmanager
def quietly(what: str) -> Iterator[None]:
    """Run code that the program does not depend on: if it fails, one line reports `what`, once."""
    try:
        yield
    except Exception as error:
        pass_on_if_a_handlers(error)
        if what not in _failed and _aside is None:
            _failed.add(what)
            say_once(f"{what}: {failure_text(error)}")


def shielded(what: str, action: Callable[..., None]) -> Callable[..., None]:
    """Return `action` as a callback that never raises."""

    @functools.wraps(action, updated=())
    def called(*args: Any) -> None:
        with quietly(what):
            action(*args)

    return called


def failure_text(error: Exception) -> str:
    """Return the error and its location in our code, for a bug report."""
    frames = [name for file, name in _frames(error) if file.startswith(_OURS)]
    where = f" in {frames[-1]}" if frames else ""
    text = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}{where}{': ' if text else ''}{text}"


def describe(error: BaseException) -> str:
    """Return a foreign error in one line; for a C++ compiler its first `error:` line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = next((line for line in lines if " error: " in line), None)
    text = telling or " ".join(lines[:2])
    return f"{type(error).__name__}: {text}"[:400] if text else type(error).__name__


def pass_on_if_a_handlers(error: Exception) -> None:
    """Raise the error if the program's signal handler raised it in our code."""
    theirs = from_a_handler(error)
    try:
        if theirs is not None:
            raise theirs
    finally:
        del theirs


def is_intended(error: BaseException) -> bool:
    """Return whether an error is not our failure, or torch's wrapper of one, as in a lowering."""
    wrapped: BaseException | None = error
    for _ in range(8):  # a chain may be a circle
        if wrapped is None:
            return False
        if getattr(wrapped, "intended", False):
            return True
        wrapped = wrapped.__cause__ or wrapped.__context__
    return False


def raised_by_us(error: BaseException) -> bool:
    """Return whether the innermost code outside of Python's own library is ours."""
    if is_intended(error):
        return False
    for file, _ in reversed(_frames(error)):
        if file.startswith(_LIBRARY) and _INSTALLED not in file:
            continue
        return file.startswith(_OURS) and file != __file__
    return False


def _frames(error: BaseException) -> list[tuple[str, str]]:
    """Return file and `file.py:line` of each frame, the innermost last."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        frames.append((file, f"{Path(file).name}:{trace.tb_lineno}"))
        trace = trace.tb_next
    return frames


_said: set[str] = set()


def say(line: str) -> None:
    """Print one line on stderr, whatever state stderr is in."""
    try:
        sys.stderr.write(f"rocm-tui: {brief(line, 400)}\n")
        sys.stderr.flush()
    except Exception as error:  # the program may have replaced stderr with anything
        pass_on_if_a_handlers(error)


def say_once(line: str) -> None:
    """Print a line once per process."""
    if line not in _said:
        _said.add(line)
        say(line)
