"""Verify pins with a person's own program, whose code shows which choices it calls.

`TORCH_TRACE` of PyTorch writes the compiled code into a private folder while the program runs. The
variable changes nothing that is compiled and nothing that the program prints. Each process writes a
file of its own. If the person traces the program themselves, our folder is inside theirs and its
files move up at the end.

Kernels that Triton or Inductor tuned by themselves are not in that code. If such a pin is to be
verified, Python also finds our hooks in the program, which record the first launch of each kernel
and key, and do nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import re
import shutil
import stat
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from backend.disk.layout import Layout
from backend.disk.safe import read_bytes
from backend.errors import CacheUnreadable
from backend.inductor.hooks.environment import LAUNCH_LOG
from backend.model.choice import Choice
from backend.model.graph import CompileOption
from backend.model.inductor_kernel import TRITON, inputs_of, is_inductors, is_kernel, portable_part
from backend.model.problem import TuningKey
from backend.model.tuning import Pin, Tuning
from backend.pins.graphs.match import Verdict, WantedChoice, judge, may_hold
from backend.pins.graphs.parts import ChoiceSources
from backend.pins.graphs.text import GraphText, OwnChoice, read_graph_text
from backend.pins.store import PinStore
from backend.tables.model import is_table_op
from rocm_tui import environment as hook_env
from rocm_tui.actions.improve import confirmed_options
from rocm_tui.actions.sources import load_model
from rocm_tui.actions.verify import PinToVerify
from rocm_tui.errors import RocmTuiError
from rocm_tui.ingest.formats.reader import json_object
from rocm_tui.ingest.formats.torch_trace import TraceCode
from rocm_tui.launch.run import Child
from rocm_tui.search.options import DEFAULT

_MOST_LAUNCH_BYTES = 64 << 20
"""Bytes of one process."""


@dataclass(frozen=True, slots=True)
class FirstLaunch:
    """The first launch of a kernel with one key: the hash of the config, our inputs key, and
    whether the config was read from a file, so that none was timed."""

    op: str
    inputs: str
    config: str
    read: bool

    def is_of(self, pin: Pin) -> bool:
        """Whether it is the very tuning that is pinned."""
        return (self.op, self.inputs) == (pin.op, pin.inputs)

    def is_like(self, pin: Pin) -> bool:
        """Whether kernel and key are those of the pin, whatever list of configs was tried."""
        return pin.op == self.op == TRITON and portable_part(self.inputs) == portable_part(
            pin.inputs
        )


class LaunchFolder:
    """The folder that the program's hooks write to; the `with` statement removes it.

    `unread` counts the files that could not be read.
    """

    def __init__(self, pins: Sequence[Pin]) -> None:
        """Raises RocmTuiError if the folder cannot be made."""
        self._path: Path | None = None
        self.unread = 0
        if any(is_kernel(pin.op) for pin in pins):
            try:
                self._path = Path(tempfile.mkdtemp(prefix="rocm-tui-launches-"))
            except OSError as error:
                why = error.strerror
                raise RocmTuiError(f"{tempfile.gettempdir()} cannot be written: {why}") from error

    def __enter__(self) -> LaunchFolder:
        return self

    def __exit__(self, *error: object) -> None:
        if self._path is not None:
            shutil.rmtree(self._path, ignore_errors=True)

    def env(self, env: Mapping[str, str]) -> dict[str, str]:
        """`env` for the program."""
        if self._path is None:
            return dict(env)
        return {**hook_env.hooked(env, ""), LAUNCH_LOG: str(self._path)}

    def launches(self) -> list[FirstLaunch]:
        """Return the first launches, each once."""
        self.unread = 0
        return list(dict.fromkeys(self._lines()))

    def _lines(self) -> Iterator[FirstLaunch]:
        try:
            # Not `glob`, which hides that a folder cannot be listed.
            files = sorted(self._path.iterdir()) if self._path else []
        except OSError:
            self.unread += 1
            return
        for path in files:
            try:
                lines = read_bytes(path, _MOST_LAUNCH_BYTES).splitlines()
            except CacheUnreadable:
                self.unread += 1
                continue
            yield from filter(None, map(_launch, lines))


def _launch(line: bytes) -> FirstLaunch | None:
    """Parse a line; None if a killed program left only a part."""
    fields = json_object(line)
    if fields is None:
        return None
    op, inputs = fields.get("op"), fields.get("inputs")
    if isinstance(op, str) and isinstance(inputs, str) and is_inductors(op):
        return FirstLaunch(op, inputs, str(fields.get("config")), fields.get("read") is True)
    kernel, key, config = fields.get("kernel"), fields.get("key"), fields.get("config")
    if not (isinstance(kernel, str) and isinstance(key, list) and isinstance(config, str)):
        return None
    # As in the name of its file, which is cut.
    inputs = inputs_of(kernel[:150], key, str(fields.get("digest") or ""))
    return FirstLaunch(TRITON, inputs, config, fields.get("read") is True)


Answer = Literal["called", "other", "unknown", "untuned", "absent"]
"""All code with these inputs calls the pinned choice; some calls another; some is unclear; all was
compiled without autotuning; there is none."""

ANOTHER = "another choice"


@dataclass(slots=True)
class PinEvidence:
    """How many graphs call the pinned choice, another one (by its label), may call an unknown one,
    or were compiled untuned.

    The same graph in several processes counts once. For a Triton kernel launches are counted, not
    graphs; `untuned` are those of the same kernel and key that used no cache, or another list of
    configs. `of_other_system` are the graphs that call the choice pinned for the same tuning in
    another cache file: no graph names its system. `called_on` and `others_on` are the indices of
    the GPUs whose graphs call the pinned choice, or another.
    """

    pin: Pin
    called: int = 0
    others: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    untuned: int = 0
    of_other_system: int = 0
    called_on: set[int] = field(default_factory=set)
    others_on: set[int] = field(default_factory=set)

    @property
    def graphs(self) -> int:
        """The number of graphs that were tuned."""
        return self.called + self.others.total() + self.unknown + self.of_other_system

    @property
    def answer(self) -> Answer:
        if self.others:
            return "other"
        if self.unknown or (self.called and self.of_other_system):
            return "unknown"
        if self.called:
            return "called"
        return "untuned" if self.untuned else "absent"

    @property
    def obeyed(self) -> bool:
        """Whether all code calls the pinned choice, or the one pinned for another system."""
        return self.answer == "called" or (self.answer == "absent" and bool(self.of_other_system))

    def hear(self, launch: FirstLaunch, labels: Mapping[str, str]) -> None:
        """Count a launch of a Triton kernel. One of Inductor may get the pinned config by
        tuning."""
        if launch.is_of(self.pin) and launch.config == self.pin.hash:
            again = is_inductors(self.pin.op) and not launch.read
            self.untuned += again
            self.called += not again
        elif launch.is_of(self.pin):
            self.others[labels.get(launch.config, ANOTHER)] += 1
        elif launch.is_like(self.pin):
            self.untuned += 1


@dataclass(frozen=True, slots=True)
class OwnEvidence:
    """A kernel of ours, for an op with these inputs, and the number of graphs that call it."""

    op: str
    inputs: str
    hash: str
    label: str
    graphs: int


_SETTINGS = b"\nimport torch._inductor.config\n"
_SETTING = re.compile(rb"^torch\._inductor\.config\.([\w.]{1,100}) = ([^\n]{1,200})$", re.MULTILINE)


_ROCM = b"type='hip'"
"""The device in the code of a Triton kernel, for a torch of ROCm."""
_DEFAULTS = frozenset((CompileOption("epilogue_fusion", "True"),))
_ROCM_DEFAULTS = _DEFAULTS | {CompileOption("layout_optimization", "False")}
"""Those options of `search/options.py` which are torch's default (`torch/_inductor/config.py`)."""


@dataclass(slots=True)
class OptionEvidence:
    """An option that `improve` confirmed for the captured graphs `confirmed`, and how many graphs
    of the program were compiled with it, with torch's default if that is another value, or with a
    third one; those whose code does not name its options are in none of these."""

    option: CompileOption
    confirmed: Sequence[str]
    set: int = 0
    default: int = 0
    other: int = 0

    def hear(self, settings: Mapping[str, str], defaults: AbstractSet[CompileOption]) -> None:
        """Count a graph, which names each option that is not torch's default."""
        unnamed = self.option.value if self.option in defaults else DEFAULT
        value = settings.get(self.option.name, unnamed)
        self.set += value == self.option.value
        self.default += value == DEFAULT != self.option.value
        self.other += value not in (DEFAULT, self.option.value)


class EvidenceCollector:
    """Collects evidence for pins from one graph after another.

    `choices` are the known choices of each key, by hash: their names, and the configurations that
    distinguish Triton templates. If no session recorded a configuration, the constants in the
    `sources` of choices in the cache dir distinguish them.
    """

    def __init__(
        self,
        pins: Sequence[Pin],
        choices: Mapping[TuningKey, Mapping[str, Choice]],
        sources: ChoiceSources | None = None,
        options: Mapping[CompileOption, Sequence[str]] = {},
    ) -> None:
        self.options = [OptionEvidence(option, graphs) for option, graphs in options.items()]
        self.findings = [PinEvidence(pin) for pin in pins]
        self._in_graphs = [
            finding
            for finding in self.findings
            if not (is_kernel(finding.pin.op) or is_table_op(finding.pin.op))
        ]
        self.graphs = 0
        """All that were heard of, whatever they hold."""
        self.unread = 0
        """The graphs whose code has an unknown form."""
        self.own: Counter[OwnChoice] = Counter()
        """How many graphs call each kernel of ours, whether it is pinned or not."""
        self._choices = choices
        self._sources = sources
        self._heard: set[bytes] = set()

    def hear(self, data: bytes) -> None:
        """Take the text of a graph, as an entry of the graph cache holds it."""
        digest = hashlib.sha256(data).digest()
        if digest in self._heard:
            return
        self._heard.add(digest)
        self.graphs += 1
        text = read_graph_text(data)
        findings = [
            finding
            for finding in self._in_graphs
            if may_hold(data, self._wanted(finding.pin, finding.pin.hash))
        ]
        if not text.is_compiled:
            self.unread += 1
            for finding in findings:
                finding.unknown += 1
            return
        self.own.update(text.own)
        if _SETTINGS in data:
            settings = {
                name.decode(): value.decode("utf-8", "replace").strip("'\"")
                for name, value in _SETTING.findall(data)
            }
            defaults = _ROCM_DEFAULTS if _ROCM in data else _DEFAULTS
            for option in self.options:
                option.hear(settings, defaults)
        for finding in findings:
            self._judge(finding, text)

    def own_evidence(self) -> list[OwnEvidence]:
        """Return the kernels of ours that were heard of, by op and inputs."""
        return [
            OwnEvidence(own.op, own.inputs, own.hash, self._label(own), graphs)
            for own, graphs in sorted(self.own.items(), key=lambda item: item[0].text())
        ]

    def _label(self, own: OwnChoice) -> str:
        """Return the name that a session recorded for a choice."""
        for key, choices in self._choices.items():
            if (key.op, key.inputs) == (own.op, own.inputs) and own.hash in choices:
                return choices[own.hash].label
        return Choice(hash=own.hash).label

    def hear_launches(self, launches: Iterable[FirstLaunch]) -> None:
        """Take what was launched of Triton kernels."""
        for launch in launches:
            for finding in self.findings:
                choices = self._choices.get(finding.pin.key, {})
                finding.hear(launch, {hash: choice.label for hash, choice in choices.items()})

    def _judge(self, finding: PinEvidence, text: GraphText) -> None:
        verdict = self._verdict(finding.pin, finding.pin.hash, text)
        if verdict == "same":
            finding.called += 1
            finding.called_on |= text.devices
        elif verdict in ("unknown", "unclear"):
            finding.unknown += 1
        elif verdict == "other" and self._is_of_other_system(finding.pin, text):
            finding.of_other_system += 1
        elif verdict == "other":
            finding.others[self._instead(finding.pin, text)] += 1
            finding.others_on |= text.devices
        elif text.tuned is False:
            verdict = self._verdict(finding.pin, finding.pin.hash, replace(text, tuned=None))
            finding.untuned += verdict != "absent"

    def _is_of_other_system(self, pin: Pin, text: GraphText) -> bool:
        """Return whether a graph calls the choice pinned for the same tuning elsewhere."""
        others = (finding.pin for finding in self._in_graphs)
        return any(
            self._verdict(other, other.hash, text) == "same"
            for other in others
            if (other.op, other.inputs) == (pin.op, pin.inputs)
            and other.system_hash != pin.system_hash
        )

    def _instead(self, pin: Pin, text: GraphText) -> str:
        """The label of the rival that a graph calls."""
        choices = self._choices.get(pin.key, {})
        for rival in _rivals(pin):
            if rival not in pin.hashes and self._verdict(pin, rival, text) == "same":
                return choices.get(rival, Choice(hash=rival)).label
        return ANOTHER

    def _verdict(self, pin: Pin, hash: str, text: GraphText) -> Verdict:
        return judge(text, self._wanted(pin, hash))

    def _wanted(self, pin: Pin, hash: str) -> WantedChoice:
        choice = self._choices.get(pin.key, {}).get(hash)
        config: Mapping[str, str] = choice.config if choice is not None else {}
        if not config and hash in pin.hashes:
            config = pin.config  # an imported pin whose tuning no session here recorded
        rivals = _rivals(pin)
        constants = {} if self._sources is None else self._sources.distinguishing(hash, rivals)
        return WantedChoice(pin.op, pin.inputs, hash, rivals, config, constants)


def _rivals(pin: Pin) -> tuple[str, ...]:
    """Return the choices that could be called: the ones timed in any precision."""
    timed = {
        hash for times in pin.timings.values() for hash, ms in times.items() if math.isfinite(ms)
    }
    return tuple(sorted(timed))


MOST_TRACE_BYTES = 512 << 20
"""The most bytes on disk for traces of a program that only we requested."""

_VARIABLES = ("TORCH_DTRACE", "TORCH_TRACE")
"""The first that is set is the one that PyTorch uses."""


class TraceFolder:
    """The folder that PyTorch writes its trace to; the `with` statement removes what is ours.

    `full` means that the limit was reached, so that not all was kept. `unread` counts the files
    that could not be looked at when they were last listed.
    """

    def __init__(self, env: Mapping[str, str], most: int = MOST_TRACE_BYTES) -> None:
        """Raises RocmTuiError if the folder cannot be made."""
        given = next((name for name in _VARIABLES if env.get(name)), None)
        self._theirs = None if given is None else Path(os.path.abspath(env[given]))  # noqa: PTH100
        try:
            if self._theirs is not None:
                self._theirs.mkdir(parents=True, exist_ok=True)
            self.path = Path(tempfile.mkdtemp(prefix="rocm-tui-trace-", dir=self._theirs))
        except OSError as error:
            where = self._theirs or tempfile.gettempdir()
            raise RocmTuiError(f"no trace can be written to {where}: {error.strerror}") from error
        self.env = {given or "TORCH_TRACE": str(self.path)}
        self._most = most
        self._kept: dict[str, int] = {}
        self.full = False
        self.unread = 0

    def __enter__(self) -> TraceFolder:
        return self

    def __exit__(self, *error: object) -> None:
        if self._theirs is not None:
            for path, _ in self.files():
                with contextlib.suppress(OSError):
                    path.rename(self._theirs / path.name)
            with contextlib.suppress(OSError):
                self.path.rmdir()
        else:
            shutil.rmtree(self.path, ignore_errors=True)

    def files(self) -> list[tuple[Path, int | None]]:
        """Return the file of each process, and how many of its first bytes are complete (None:
        all)."""
        files: list[tuple[Path, int | None]] = []
        self.unread = 0
        try:
            paths = sorted(self.path.iterdir())
        except OSError:
            self.unread = 1
            return files
        for path in paths:
            try:
                if stat.S_ISREG(path.lstat().st_mode):
                    files.append((path, self._kept.get(path.name, 0) if self.full else None))
            except OSError:  # the other files are evidence, too
                self.unread += 1
        return files

    def look(self) -> None:
        """Keep the files within the limit: what is written beyond it is given back to the disk.

        The writer notices nothing: it goes on at its own place in the file.
        """
        if self._theirs is not None:
            return
        sizes: dict[str, int] = {}
        used = 0
        for path, _ in self.files():
            with contextlib.suppress(OSError):
                status = path.stat()
                sizes[path.name] = status.st_size
                used += status.st_blocks * 512
        if not self.full and used > self._most:
            self.full, self._kept = True, sizes
        if self.full and used > self._most:
            for name in sizes:
                with contextlib.suppress(OSError):
                    os.truncate(self.path / name, self._kept.get(name, 0))


@dataclass(frozen=True, slots=True)
class ProgramProof:
    """The code that the processes of a program compiled, by pin.

    `status` is the program's exit code, or minus the signal that ended it. Of `graphs` compiled
    graphs `unread` have an unknown form; `damaged` more were cut off. `full` means that the trace
    reached its limit, so that not all was kept. `own` are the kernels of ours that graphs call,
    and `options` the confirmed options of Inductor. `lost` counts the files of evidence that could
    not be read.
    """

    argv: Sequence[str]
    status: int
    processes: int
    graphs: int
    unread: int
    damaged: int
    full: bool
    findings: Sequence[PinEvidence]
    own: Sequence[OwnEvidence]
    options: Sequence[OptionEvidence]
    lost: int = 0

    @property
    def complete(self) -> bool:
        """Whether all code was heard of."""
        return not (self.full or self.damaged or self.lost)

    @property
    def proved(self) -> bool:
        """Whether the program ended well and calls every pinned choice (of a tuning pinned for
        several systems, one); without pins, whether it calls a kernel of ours or has a confirmed
        option."""
        called = all(finding.obeyed for finding in self.findings)
        used = self.findings or self.own or any(option.set for option in self.options)
        return self.status == 0 and self.complete and called and bool(used)


def prove_by_program(
    argv: Sequence[str], pins: Sequence[Pin], layout: Layout, cache_dir: Path | None
) -> ProgramProof:
    """Run a program, on `cache_dir` if a person named one; then read what it compiled.

    Raises RocmTuiError if it cannot be run.
    """
    env = hook_env.unhooked(os.environ)
    if cache_dir is not None:
        env["TORCHINDUCTOR_CACHE_DIR"] = str(layout.root)
    with TraceFolder(env) as folder, LaunchFolder(pins) as launched:
        try:
            status = Child(look=folder.look).run(argv, launched.env({**env, **folder.env}))
        except OSError as error:
            raise RocmTuiError(f"{argv[0]}: cannot be run: {error.strerror}") from error
        choices, sources = _known_choices(layout), ChoiceSources(layout.root)
        witness = EvidenceCollector(pins, choices, sources, confirmed_options(layout))
        witness.hear_launches(launched.launches())
        proof = _read_trace(folder, argv, status, witness)
        return replace(proof, lost=proof.lost + launched.unread)


def _read_trace(
    folder: TraceFolder, argv: Sequence[str], status: int, witness: EvidenceCollector
) -> ProgramProof:
    files, damaged = folder.files(), 0
    lost = folder.unread
    for path, most in files:
        reader = TraceCode()
        try:
            with path.open("rb") as stream:
                for data in reader.read(stream, most):
                    witness.hear(data)
        except OSError:  # the program may have run for hours: judge by the other files
            lost += 1
        damaged += reader.damaged
    return ProgramProof(
        argv=argv,
        status=status,
        processes=len(files),
        graphs=witness.graphs,
        unread=witness.unread,
        damaged=damaged,
        full=folder.full,
        findings=witness.findings,
        own=witness.own_evidence(),
        options=witness.options,
        lost=lost,
    )


def _known_choices(layout: Layout) -> Mapping[TuningKey, Mapping[str, Choice]]:
    """Return the known choices of each key by hash; an older row knows less of them."""
    choices: dict[TuningKey, dict[str, Choice]] = {}
    for row in load_model(layout).rows():
        of_tuning = choices.setdefault(row.tuning.key, {}) if row.tuning.key else {}
        for choice in row.tuning.choices:
            if choice.hash and (choice.config or choice.hash not in of_tuning):
                of_tuning[choice.hash] = choice
    return choices


def pins_to_verify(pins: Sequence[Pin], layout: Layout) -> list[PinToVerify]:
    """Return pins with what sessions recorded of their tuning, and the GPUs of their status."""
    tunings = {
        (row.tuning.key, choice.hash): row.tuning
        for row in load_model(layout).rows()
        for choice in row.tuning.choices
    }
    gpus = {
        (status.pin.system_hash, status.pin.key): tuple(each.index for each in status.devices)
        for status in PinStore(layout).status()
    }
    return [
        replace(
            _as_tuned(pin, tunings.get((pin.key, pin.hash))),
            gpus=gpus.get((pin.system_hash, pin.key), ()),
        )
        for pin in pins
    ]


def _as_tuned(pin: Pin, tuning: Tuning | None) -> PinToVerify:
    return (
        PinToVerify(pin)
        if tuning is None
        else PinToVerify(pin, tuning.threads, tuning.options_text)
    )
