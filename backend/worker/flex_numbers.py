"""A recorded call of flex attention: its graph, numbers for it, the matrix of its scores, its true
result, and the program that a job compiles.

Each statement of its functions must have the form of PyTorch's own printer: a call of an op of
torch. It becomes a node of an FX graph, through the reader of captured graphs; anything else is
refused with its line, and the text is never run.

The content of tensors that the functions read is not recorded, only their sizes: integers along
queries or keys are set to eight documents of equal length, others to the key at which the queries
begin. The block mask follows from the mask, so that the amount of computation is like a model's.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from backend.counted import counted
from backend.inductor.result_checks import COARSE, LOW, Truth, exact_sums
from backend.inductor.torch.compiling import compile_call
from backend.inductor.true_results import NoReference
from backend.model.problem import TensorSpec
from backend.wire.captured import FUNCTIONS, MASK, SCORE, FlexCall, FlexCallInvalid, flex_call_of
from backend.worker.rebuilt import NotRebuildable, RebuiltProgram, dtype_named, storage_of
from backend.worker.trial.program import Function
from backend.worker.trial.text import TextRefused, constant_of

MOST_DEPTH = 4
"""The maximum nesting of arguments."""


@dataclass(frozen=True, slots=True)
class TensorRef:
    """A reference to the tensor of this number."""

    number: int


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """A reference to the function of this name."""

    function: str


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """A call; `arguments` are literals, a `TensorRef` or a `FunctionRef`."""

    op: str
    arguments: tuple[Any, ...]
    tensors: tuple[TensorSpec, ...]
    functions: Mapping[str, Function]

    @property
    def backward(self) -> bool:
        return self.op == "flex_attention_backward"

    @property
    def block_mask(self) -> tuple[Any, ...]:
        """The lengths of queries and keys; the number and indices of key blocks for each query
        block; the same for full blocks; both by keys; the size of a block; a name."""
        mask: tuple[Any, ...] = self.arguments[9 if self.backward else 4]
        return mask

    @property
    def lengths(self) -> tuple[int, int, int, int]:
        """The lengths of queries, of keys, and of a block of each."""
        (*_, queries, _), (*_, keys, _) = (
            self.tensors[place.number].sizes for place in self.arguments[:2]
        )
        tall, wide = self.block_mask[-3:-1]
        return queries, keys, tall, wide

    @property
    def scale(self) -> float:
        return float(self.arguments[10 if self.backward else 5])

    @property
    def options(self) -> Mapping[str, Any]:
        """The options of the kernel."""
        options: Mapping[str, Any] = self.arguments[11 if self.backward else 6]
        return options

    def module(self) -> torch.fx.GraphModule:
        """Return a graph of the call alone, whose inputs are the memory of the tensors: `t0`, `t1`,
        ... Raises TextRefused."""
        graph, root = torch.fx.Graph(), torch.nn.Module()
        for name, function in self.functions.items():
            root.add_module(name, function.module())
        bases = [graph.placeholder(f"t{at}") for at in range(len(self.tensors))]
        views = [
            graph.call_function(
                torch.ops.aten.as_strided.default,
                (base, list(spec.sizes), list(spec.strides), spec.offset),
            )
            if spec.offset
            else base
            for base, spec in zip(bases, self.tensors, strict=True)
        ]

        def filled(value: Any) -> Any:
            if isinstance(value, TensorRef):
                return views[value.number]
            if isinstance(value, FunctionRef):
                return graph.get_attr(value.function)
            if isinstance(value, tuple):
                return tuple(map(filled, value))
            if isinstance(value, dict):
                return {key: filled(each) for key, each in value.items()}
            return value

        op = getattr(torch.ops.higher_order, self.op)
        called = graph.call_function(op, tuple(map(filled, self.arguments)))
        count = 3 if self.backward else 1
        graph.output(
            tuple(graph.call_function(operator.getitem, (called, at)) for at in range(count))
        )
        return torch.fx.GraphModule(root, graph)


def read_call(text: str) -> AttentionCall:
    """Parse a recorded call. Raises TextRefused, also for one that could not be recorded."""
    try:
        recorded = flex_call_of(text)
    except FlexCallInvalid as error:
        raise TextRefused(f"its record is not a call: {error}") from error
    if recorded.reason:
        raise TextRefused(recorded.reason)
    return _call(recorded)


def _call(recorded: FlexCall) -> AttentionCall:
    parsed = _parsed(recorded.call, "eval").body
    match parsed:
        case ast.Call(func=ast.Name(id=op), args=given, keywords=[]) if op in FUNCTIONS:
            pass
        case _:
            raise TextRefused("a call of flex attention is expected")
    functions = {name: _function(name, recorded.functions.get(name, "")) for name in FUNCTIONS[op]}
    reader = _Arguments(len(recorded.tensors), functions)
    arguments = tuple(reader.read(each) for each in given)
    call = AttentionCall(op, arguments, recorded.tensors, functions)
    call.module()
    return call


def _function(name: str, text: str) -> Function:
    try:
        *before, forward = _parsed(text, "exec").body or [None]
        if not isinstance(forward, ast.FunctionDef):
            raise TextRefused("`forward` is expected")
        return Function(tuple(map(constant_of, before)), forward)
    except TextRefused as error:
        raise TextRefused(f"{name}: {error}") from error


def _parsed(text: str, mode: str) -> Any:
    try:
        return ast.parse(text, mode=mode)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise TextRefused("it is not Python", getattr(error, "lineno", None)) from error


class _Arguments:
    def __init__(self, tensors: int, functions: Mapping[str, Function]) -> None:
        self._names: dict[str, Any] = {f"t{at}": TensorRef(at) for at in range(tensors)}
        self._names |= {name: FunctionRef(name) for name in functions}

    def read(self, node: ast.expr, depth: int = 0) -> Any:
        """Read an argument. Raises TextRefused."""
        if depth > MOST_DEPTH:
            raise TextRefused("its arguments are nested too deep")
        match node:
            case ast.Name(id=name) if name in self._names:
                return self._names[name]
            case ast.Tuple(elts=parts):
                return tuple(self.read(part, depth + 1) for part in parts)
            case ast.Dict(keys=keys, values=values):
                words = [self.read(key, depth + 1) for key in keys if key is not None]
                if len(words) != len(values) or not all(isinstance(w, str) for w in words):
                    raise TextRefused("its options have odd names")
                given = [self.read(value, depth + 1) for value in values]
                return dict(zip(words, given, strict=True))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return -number
            case ast.Constant(value=None | bool() | int() | float() | str() as value):
                return value
        raise TextRefused("one of its arguments is not a number, tensor or function")


class _WideInterpreter(torch.fx.Interpreter):  # type: ignore[misc]
    """An interpreter that computes in one wide type what Inductor's kernels compute in float32."""

    def __init__(self, module: torch.fx.GraphModule, wide: torch.dtype) -> None:
        super().__init__(module)
        self._wide = wide

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        def widened(value: Any) -> Any:
            floating = isinstance(value, torch.dtype) and value.is_floating_point
            return self._wide if floating else value

        given = tuple(map(widened, args))
        words = {name: widened(value) for name, value in kwargs.items()}
        return super().call_function(target, given, words)


class Scores:
    """The scores of a `call` with the numbers `tensors`; everything in the type `wide`."""

    def __init__(self, call: AttentionCall, tensors: Sequence[Tensor], wide: torch.dtype) -> None:
        self._wide = wide
        reads = [[self._read(tensors, value) for value in given] for given in call.arguments[-2:]]
        self._score_reads, self._mask_reads = reads
        self._score = _WideInterpreter(call.functions[SCORE].module(), wide)
        self._mask = _WideInterpreter(call.functions[MASK].module(), wide)
        self.device = tensors[0].device

    def _read(self, tensors: Sequence[Tensor], value: Any) -> Any:
        if not isinstance(value, TensorRef):
            return value
        tensor = tensors[value.number]
        return tensor.to(self._wide) if tensor.is_floating_point() else tensor

    def places(self, *counts: int | range) -> list[Tensor]:
        """Return batches, heads, queries and keys, in shapes that broadcast."""
        numbers_by_axis = []
        for at, count in enumerate(counts):
            wanted = count if isinstance(count, range) else range(count)
            shape = [1] * 4
            shape[at] = len(wanted)
            numbers = torch.arange(
                wanted.start, wanted.stop, wanted.step, device=self.device, dtype=torch.int32
            )
            numbers_by_axis.append(numbers.reshape(shape))
        return numbers_by_axis

    def changed(self, scores: Tensor, places: Sequence[Tensor]) -> Tensor:
        changed: Tensor = self._score.run(scores, *places, *self._score_reads)
        return changed.expand_as(scores)

    def let_through(self, places: Sequence[Tensor]) -> Tensor:
        """Return the mask at all these positions."""
        through: Tensor = self._mask.run(*places, *self._mask_reads)
        return through.expand([len(each.flatten()) for each in places])


MOST_AT_ONCE = 1 << 24
"""The maximum number of scores computed at once."""


def block_tensors(call: AttentionCall, scores: Scores) -> dict[int, Tensor]:
    """Return the block mask's tensors by number, as from `create_block_mask`: partial, full."""
    given = call.block_mask
    queries, keys, tall, wide = call.lengths
    partial, full = (_shape(call, given[at]) for at in (3, 5))
    assert partial is not None
    batches, heads = partial[:2]
    any_, all_ = _blocks(scores, (batches, heads, queries, keys), (tall, wide))
    some = any_ & ~all_ if full is not None else any_
    tensors: dict[int, Tensor] = {}
    for at, blocks in ((2, some), (4, all_), (6, some.mT), (8, all_.mT)):
        counts, places = given[at : at + 2]
        if isinstance(counts, TensorRef) and isinstance(places, TensorRef):
            tensors[counts.number], tensors[places.number] = _sparse(
                blocks, call.tensors[places.number].sizes
            )
    return tensors


def _shape(call: AttentionCall, value: Any) -> Sequence[int] | None:
    return call.tensors[value.number].sizes if isinstance(value, TensorRef) else None


def _blocks(scores: Scores, sizes: Sequence[int], block: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """Return the blocks in which any position passes the mask, and those in which all do."""
    batches, heads, queries, keys = sizes
    tall, wide = min(block[0], queries), min(block[1], keys)
    step = max(1, MOST_AT_ONCE // max(1, batches * heads * keys * tall)) * tall
    parts_of_heads: list[tuple[Tensor, Tensor]] = []
    for first in range(0, queries, step):
        rows = range(first, min(queries, first + step))
        through = scores.let_through(scores.places(batches, heads, rows, keys))
        missing = (-keys % wide, -len(rows) % tall)
        padded = torch.nn.functional.pad(through, (0, missing[0], 0, missing[1]))
        split = padded.reshape(batches, heads, -1, tall, padded.shape[-1] // wide, wide)
        parts_of_heads.append((split.any(-1).any(-2), split.all(-1).all(-2)))
    any_, all_ = (torch.cat(parts, -2) for parts in zip(*parts_of_heads, strict=True))
    return any_, all_


def _sparse(blocks: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the number of blocks in each row, and their indices, the used ones first."""
    whole = torch.zeros(tuple(sizes), dtype=torch.bool, device=blocks.device)
    rows, columns = min(sizes[-2], blocks.shape[-2]), min(sizes[-1], blocks.shape[-1])
    whole[..., :rows, :columns] = blocks[..., :rows, :columns]
    places = torch.argsort(whole.int(), dim=-1, descending=True, stable=True)
    return whole.sum(-1).to(torch.int32), places.to(torch.int32)


def is_place_of(function: Function, at: int) -> bool:
    """Return whether the function uses its input number `at` as an index into others."""
    module = function.module()
    nodes = list(module.graph.nodes)
    derived = {[node for node in nodes if node.op == "placeholder"][at]}
    for node in nodes:
        if not derived.intersection(node.all_input_nodes):
            continue
        if str(node.target).startswith("aten.index.") and derived.intersection(
            each for each in node.args[1] if each is not None
        ):
            return True
        derived.add(node)
    return False


SEED = 0x7A1D
DOCUMENTS = 8
FEW = 16
"""Dimensions up to this size are batches or heads, not queries or keys."""

MOST_SCORES = {"cpu": 1 << 25, "cuda": 1 << 28}
"""The number of scores for which true values are computed: of more, some rows are checked."""
MOST_OF_GRADIENTS = 1 << 32
_AT_ONCE = 1 << 25


_LOGS, _DELTA = 3, 4
"""Indices of the backward's inputs with the logarithms of the rows' sums, and with the sums of the
rows' results times their gradients."""


class Numbers:
    """The tensors of one call, tuned as `op`; they are created when first needed."""

    def __init__(self, op: str, call: AttentionCall) -> None:
        self._op = op
        self._call = call
        self._device = torch.device(call.tensors[0].device)
        self._wide = torch.float64 if self._device.type == "cpu" else torch.float32

    def forget(self) -> None:
        """Release the tensors; they will be created again."""
        for name in ("_tensors", "_rows"):
            self.__dict__.pop(name, None)

    def given(self, place: int, name: str) -> Tensor | None:
        """See `OpNumbers`."""
        if self._call.backward and place in (_LOGS, _DELTA):
            return self._rows[place - _LOGS].clone()
        number = name.removeprefix("t")
        if not (name.startswith("t") and number.isdigit() and int(number) < len(self._tensors)):
            return None
        return _laid(self._tensors[int(number)], self._call.tensors[int(number)])

    @cached_property
    def _tensors(self) -> list[Tensor]:
        generator = torch.Generator(self._device)
        generator.manual_seed(SEED)
        specs = self._call.tensors
        tensors = [self._drawn(at, spec, generator) for at, spec in enumerate(specs)]
        with torch.no_grad():
            for at, blocks in block_tensors(self._call, self._scores(tensors)).items():
                tensors[at] = blocks
        return tensors

    def _drawn(self, at: int, spec: TensorSpec, generator: torch.Generator) -> Tensor:
        dtype, sizes = dtype_named(spec.dtype), spec.sizes
        if self._call.backward and self._call.arguments[6] == TensorRef(at):
            return torch.zeros(sizes, dtype=dtype, device=self._device)  # a loss has no such sums
        if dtype.is_floating_point:
            numbers = torch.empty(sizes, device=self._device)
            if len(sizes) > 1:
                return numbers.normal_(generator=generator).to(dtype)
            return numbers.uniform_(0.0, 0.25, generator=generator).to(dtype)
        if dtype == torch.bool:
            return torch.ones(sizes, dtype=dtype, device=self._device)
        if not self._is_free(at):
            return torch.zeros(sizes, dtype=dtype, device=self._device)
        count = sizes[-1] if sizes else 1
        if count > FEW:
            row = torch.arange(count, device=self._device) * DOCUMENTS // count
            return row.expand(sizes).to(dtype)
        queries, keys, *_ = self._call.lengths
        return torch.full(sizes, keys - queries or keys, dtype=dtype, device=self._device)

    def _is_free(self, at: int) -> bool:
        """Return whether a function reads the tensor, and does not use it as an index."""
        for name, before, reads in ((SCORE, 5, -2), (MASK, 4, -1)):
            for place, value in enumerate(self._call.arguments[reads]):
                if value == TensorRef(at):
                    return not is_place_of(self._call.functions[name], before + place)
        return False

    def _scores(self, tensors: Sequence[Tensor]) -> Scores:
        return Scores(self._call, tensors, self._wide)

    # Results

    @property
    def note(self) -> str:
        """See `OpNumbers`."""
        reads = {value for given in self._call.arguments[-2:] for value in given}
        whole = [
            each
            for each in reads
            if isinstance(each, TensorRef) and not self._tensors[each.number].is_floating_point()
        ]
        if not whole:
            return ""
        counts = [
            self._tensors[self._call.block_mask[at].number]
            for at in (2, 4)
            if isinstance(self._call.block_mask[at], TensorRef)
        ]
        blocks = self._tensors[self._call.block_mask[3].number].numel()
        share = sum(int(count.sum()) for count in counts) / max(1, blocks)
        return (
            f"{counted(len(whole), 'tensor')} of whole numbers that its functions read were made "
            f"up: {share:.0%} of the blocks are computed"
        )

    def truth(self, precision: str) -> Truth:
        """Return the true result. Raises NoReference, and whatever torch raises."""
        with exact_sums():
            if self._call.backward:
                return self._gradients(precision)
            with torch.no_grad():
                return self._attention(precision)

    def result(self, operands: Sequence[Tensor]) -> Tensor:
        """Return a choice's result from its operands after the run, the output last."""
        out = operands[-1]
        if self._op == "flex_decoding":
            largest, sums = operands[3], operands[4]
            most = largest.amax(1, keepdim=True)
            share = torch.exp2(torch.where(most.isneginf(), 0.0, largest - most))
            total = (sums * share).sum(1)
            total = torch.where(most.squeeze(1).isneginf(), 1.0, total)
            return (out * share[..., None]).sum(1) / total[..., None]
        if self._call.backward:
            return _side_by_side(operands[6], out, operands[7])
        return out

    def _attention(self, precision: str) -> Truth:
        call = self._call
        query, key, value = self._wide_inputs()
        batches, heads, queries, _ = query.shape
        keys = key.shape[-2]
        most = MOST_SCORES[self._device.type]
        step = max(1, math.ceil(batches * heads * queries * keys / most))
        rows = range(0, queries, step)
        at_once = max(1, _AT_ONCE // (batches * heads * keys))
        scores, parts = self._scores(self._tensors), []
        for first in range(0, len(rows), at_once):
            some = rows[first : first + at_once]
            part = query[:, :, some.start : some.stop : step]
            shares = _shares(call, scores, part, key, (batches, heads, some, keys))[0]
            parts.append((shares @ value, shares @ value.abs()))
        values, terms = (torch.cat(part, -2) for part in zip(*parts, strict=True))
        allowed = self._allowed(values, terms, precision)
        return Truth(values, allowed, slice(None, None, step))

    def _wide_inputs(self) -> list[Tensor]:
        """Return query, key and value, with a key and a value for each head of the query."""
        query, key, value = (
            self._tensors[place.number].to(self._wide) for place in self._call.arguments[:3]
        )
        batches, heads = query.shape[:2]
        shared = heads // key.shape[1]
        spread = [
            each.repeat_interleave(shared, 1).expand(batches, -1, -1, -1) for each in (key, value)
        ]
        return [query, *spread]

    @cached_property
    def _rows(self) -> tuple[Tensor, Tensor]:
        """Return the backward's inputs in float32: the sums' logarithms, base 2, and `delta`."""
        query, key, value = self._wide_inputs()
        batches, heads, queries, _ = query.shape
        keys = key.shape[-2]
        gradient = self._tensors[self._call.arguments[5].number].to(self._wide)
        scores = self._scores(self._tensors)
        at_once = max(1, _AT_ONCE // (batches * heads * keys))
        logs, deltas = [], []
        with torch.no_grad(), exact_sums():
            for first in range(0, queries, at_once):
                some = range(first, min(queries, first + at_once))
                part = query[:, :, first : some.stop]
                shares, log = _shares(self._call, scores, part, key, (batches, heads, some, keys))
                logs.append(log / math.log(2))
                deltas.append(((shares @ value) * gradient[:, :, first : some.stop]).sum(-1))
        return torch.cat(logs, -1).float(), torch.cat(deltas, -1).float()

    def _gradients(self, precision: str) -> Truth:
        call = self._call
        query, key, value = self._wide_inputs()
        given = self._tensors[call.arguments[5].number].to(self._wide)
        batches, heads, queries, depth = query.shape
        keys, shared = key.shape[-2], heads // call.tensors[call.arguments[1].number].sizes[1]
        kept = call.tensors[call.arguments[1].number].sizes[0]
        if batches * heads * queries * keys > MOST_OF_GRADIENTS:
            raise NoReference("it has too many scores")
        if value.shape[-1] != depth or kept != batches:
            raise NoReference("its keys and values have other sizes than its queries")
        scores, scale = self._scores(self._tensors), call.scale
        gradients_of_heads: list[tuple[Tensor, ...]] = []
        for head in range(heads):
            q, k, v, g = (each[:, head : head + 1] for each in (query, key, value, given))
            raw = (q @ k.mT * scale).requires_grad_()
            sizes = (batches, range(head, head + 1), queries, keys)
            changed = scores.changed(raw, scores.places(*sizes))
            (slope,) = torch.autograd.grad(changed.sum(), raw)
            with torch.no_grad():
                shares, _ = _softmax(changed, scores.let_through(scores.places(*sizes)))
                inner, size = g @ v.mT, g.abs() @ v.abs().mT
                delta = ((shares @ v) * g).sum(-1, keepdim=True)
                ds = shares * (inner - delta) * slope * scale
                ds_size = shares * (size + delta.abs()) * slope.abs() * scale
                gradients_of_heads.append(
                    (
                        ds @ k,
                        ds_size @ k.abs(),
                        ds.mT @ q,
                        ds_size.mT @ q.abs(),
                        shares.mT @ g,
                        shares.mT @ g.abs(),
                    )
                )
        dq, dq_size, *rest = (
            torch.cat(parts, 1) for parts in zip(*gradients_of_heads, strict=True)
        )
        dk, dk_size, dv, dv_size = (each.unflatten(1, (-1, shared)).sum(2) for each in rest)
        values = _side_by_side(dq, dk, dv)
        terms = _side_by_side(dq_size, dk_size, dv_size)
        return Truth(values, self._allowed(values, terms, precision), slice(None))

    def _allowed(self, values: Tensor, terms: Tensor, precision: str) -> Tensor:
        """Return the tolerance of each value: the shares of a row are rounded to the factors' type
        before they are multiplied again, and the error of a score affects its share."""
        spec = self._call.tensors[0]
        dtype = dtype_named(spec.dtype)
        coarse = COARSE.get(precision, 0.0) if dtype == torch.float32 else 0.0
        if dtype == torch.float32 and self._device.type == "cuda":
            coarse = max(coarse, COARSE["high"])
        if self._call.options.get("PRESCALE_QK"):
            coarse = max(coarse, LOW.get(dtype, 0.0))
        query, key, _ = self._wide_inputs()
        longest = float(query.norm(dim=-1).max()) * float(key.norm(dim=-1).max())
        off = max(coarse, 2.0**-20) * abs(self._call.scale) * longest
        relative = 4 * (max(LOW.get(dtype, 0.0), coarse) + off)
        return 2 * torch.finfo(dtype).eps * values.abs() + relative * terms + 1e-6


def _shares(
    call: AttentionCall,
    scores: Scores,
    query: Tensor,
    key: Tensor,
    sizes: tuple[int, int, range, int],
) -> tuple[Tensor, Tensor]:
    """Return the softmax of these rows, and the logarithms of its sums."""
    places = scores.places(*sizes)
    changed = scores.changed(query @ key.mT * call.scale, places)
    return _softmax(changed, scores.let_through(places))


def _softmax(scores: Tensor, through: Tensor) -> tuple[Tensor, Tensor]:
    """Return the softmax; fully masked rows are 0."""
    kept = scores.masked_fill(~through, -math.inf)
    return kept.softmax(-1).nan_to_num(0.0), kept.logsumexp(-1)


def _side_by_side(*parts: Tensor) -> Tensor:
    return torch.cat([part.flatten(1, 2) for part in parts], 1)


def _laid(numbers: Tensor, spec: TensorSpec) -> Tensor:
    """Return the numbers in memory as in `spec`: a view from its beginning, behind which the
    tensor's own offset stays free."""
    reach = sum((n - 1) * step for n, step in zip(spec.sizes, spec.strides, strict=True)) + 1
    base = torch.zeros(spec.offset + reach, dtype=numbers.dtype, device=numbers.device)
    torch.as_strided(base, spec.sizes, spec.strides, spec.offset).copy_(numbers)
    return torch.as_strided(base, spec.sizes, spec.strides, 0)


def flex_program(op: str, recorded: str) -> RebuiltProgram:
    """Return the program of a recorded call. Raises NotRebuildable."""
    if not recorded:
        raise NotRebuildable(
            f"{op} cannot be rebuilt: its key has neither its functions nor its block mask; run "
            "its program once with `rocm-tui run -- CMD`, which records them"
        )
    try:
        call = read_call(recorded)
    except TextRefused as error:
        raise NotRebuildable(f"{op} cannot be rebuilt: {error}") from error

    def compiler(module: Callable[..., Any]) -> Callable[..., Any]:
        def run(*memory: Tensor) -> object:
            compiled = compile_call(module(), memory, backward=call.backward)
            return compiled(list(memory))

        return run

    memory = tuple(_memory(spec) for spec in call.tensors)
    return RebuiltProgram(
        call.module, memory, freezing=False, compiler=compiler, numbers=Numbers(op, call)
    )


def _memory(spec: TensorSpec) -> Tensor:
    """Return memory for a tensor. Integers are all 0, because some are used as indices. An offset
    is a view in the graph; the template for a CPU takes the number of keys from its base."""
    storage: Tensor = storage_of(spec)
    storage = storage if storage.is_floating_point() else torch.zeros_like(storage)
    if not spec.offset:
        return torch.as_strided(storage, spec.sizes, spec.strides)
    if len(spec.sizes) < 3:
        return storage
    rows = spec.sizes[2]
    return storage.new_zeros(1, 1, rows, -(-len(storage) // rows))
