"""Tunings and their choices as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from backend.model.choice import Choice
from backend.model.tuning import Tuning
from backend.toolchain.resources import Unknown
from rocm_tui.json_output import JsonObject, fill
from rocm_tui.render.measured import MeasuredJson, MeasurementJson
from rocm_tui.render.tunings import benchmark_text
from rocm_tui.session import stats
from rocm_tui.session.graphs import Share
from rocm_tui.session.in_use import device_name, in_use, pinned_choice
from rocm_tui.session.kernel_resources import ResourceUse
from rocm_tui.session.model import Row
from rocm_tui.session.stats import layout_of

if TYPE_CHECKING:
    from typing_extensions import Self


class ResourcesJson(JsonObject):
    """What a kernel takes of its GPU, LDS and scratch in bytes; or why that is `unknown`."""

    unknown: str | UnsetType = UNSET
    target: str | UnsetType = UNSET
    vgprs: int | UnsetType | None = UNSET
    agprs: int | UnsetType | None = UNSET
    sgprs: int | UnsetType | None = UNSET
    lds: int | UnsetType | None = UNSET
    scratch: int | UnsetType | None = UNSET
    vgpr_spills: int | UnsetType | None = UNSET
    sgpr_spills: int | UnsetType | None = UNSET
    waves_per_simd: int | UnsetType | None = UNSET
    most_waves_per_simd: int | UnsetType | None = UNSET
    limited_by: str | UnsetType | None = UNSET

    @classmethod
    def of(cls, known: ResourceUse | Unknown | None) -> ResourcesJson | None:
        if known is None:
            return None
        if isinstance(known, Unknown):
            return cls(unknown=known.reason)
        held = known.occupancy
        return fill(
            cls,
            known.resources,
            target=str(known.target),
            waves_per_simd=held.waves_per_simd if held else None,
            most_waves_per_simd=held.of if held else None,
            limited_by=held.limited_by if held else None,
        )


class GraphPartJson(JsonObject):
    """A graph that calls the choice of a tuning."""

    id: str
    title: str
    count: int
    calls: int
    share: float | None


def _share_members(share: Share | None) -> dict[str, Any]:
    """Return what a program does with a tuning; unknown values are None."""
    return {
        "calls": share.calls if share else None,
        "share": share.share if share else None,
        "share_by": share.basis if share and share.share is not None else None,
        "gain": share.gain if share else None,
        "gain_at_most": share.at_most if share else None,
        "program": share.program if share else None,
        "graphs": [fill(GraphPartJson, part, id=part.graph) for part in share.parts]
        if share
        else [],
    }


class EntryJson(JsonObject):
    """Where a tuned table has an entry; `columns` are the others of its row, where shown."""

    tuner: str
    line: int
    device: str | None
    columns: dict[str, str] | UnsetType

    @classmethod
    def of(cls, tuning: Tuning, columns: dict[str, str] | UnsetType = UNSET) -> EntryJson | None:
        """Return None for a tuning of Inductor's."""
        entry = tuning.entry
        if entry is None:
            return None
        return fill(cls, entry, device=entry.device or None, columns=columns)


class BesideJson(JsonObject):
    """An entry of a tuned table beside a tuning."""

    tuner: str | None
    solution: str | None
    ms: float | None
    device: str | None
    source: str | None
    line: int | None
    key: str | None

    @classmethod
    def of(cls, tuning: Tuning) -> BesideJson:
        choice = tuning.choices[0] if tuning.choices else None
        entry = tuning.entry
        return cls(
            tuner=entry.tuner if entry else None,
            solution=choice.name if choice else None,
            ms=choice.ms if choice else None,
            device=(entry.device or None) if entry else None,
            source=tuning.sources[0] if tuning.sources else None,
            line=entry.line if entry else None,
            key=tuning.inputs_key,
        )


class ProblemJson(JsonObject):
    """What a tuning is of, in short."""

    id: str
    op: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]


class ChoiceJson(JsonObject):
    """A choice with its repeated measurement; `reason` is why it has no time of its own."""

    name: str | None
    hash: str | None
    ms: float | None
    config: dict[str, str]
    failed: bool
    offered: bool
    reason: str | None
    quantiles: tuple[float, float] | None
    origin: str | None
    moved: str | None
    measured: MeasuredJson | None
    resources: ResourcesJson | UnsetType | None

    @classmethod
    def of(
        cls,
        tuning: Tuning,
        choice: Choice,
        resources: Mapping[str, ResourceUse | Unknown] | None = None,
    ) -> Self:
        kernel = None if resources is None else resources.get(choice.hash or "")
        return fill(
            cls,
            choice,
            ms=stats.single_ms(tuning, choice),
            reason=choice.reason or benchmark_text(tuning, choice) or None,
            measured=MeasuredJson.of(stats.measured(tuning, choice)),
            resources=UNSET if resources is None else ResourcesJson.of(kernel),
        )


class DeviceChoiceJson(ChoiceJson):
    identity: str | None
    shared: bool


class DeviceJson(JsonObject):
    """One device of a problem that several devices of a box tuned."""

    device: str
    index: int | None
    state: str
    in_use: str | None
    ms: float | None
    identity: str | None
    choices: list[DeviceChoiceJson]
    measurement: MeasurementJson | None
    pinned: str | None
    rank: int | None
    session: str | None
    when: float | None
    sources: tuple[str, ...]

    @classmethod
    def of(cls, row: Row) -> DeviceJson:
        tuning, own, pinned = row.tuning, in_use(row), pinned_choice(row)
        return fill(
            cls,
            tuning,
            device=device_name(row),
            index=tuning.device_index,
            in_use=own.hash if own else None,
            ms=stats.time_ms(tuning, own),
            identity=own.identity if own else None,
            choices=[DeviceChoiceJson.of(tuning, choice) for choice in tuning.choices],
            measurement=MeasurementJson.of(tuning.measured),
            pinned=pinned[1].hash if pinned else None,
        )


class SecondsJson(JsonObject):
    benchmark: float | None
    precompile: float | None


class TuningJson(ProblemJson):
    """A tuning; times in milliseconds and seconds, unknown values are null."""

    occurrence: int
    strides: tuple[tuple[int, ...], ...]
    device: str | None
    layout: str | None
    precision: str | None
    inputs_key: str | None
    state: str
    num_choices: int | None
    choices: list[ChoiceJson]
    measurement: MeasurementJson | None
    suspect: str | None
    seconds: SecondsJson
    selected: str | None
    selected_by: str | None
    decided_by_rank: int | None
    apart: str | None
    in_use: str | None
    rank: int | None
    session: str | None
    when: float | None
    pinned: str | None
    pin_state: str | None
    entry: EntryJson | None
    beside: list[BesideJson]
    kernel: str | None
    code: str | None
    sources: tuple[str, ...]
    devices: list[DeviceJson]
    calls: int | None
    share: float | None
    share_by: str | None
    gain: float | None
    gain_at_most: float | None
    program: str | None
    graphs: list[GraphPartJson]

    @classmethod
    def of(
        cls,
        row: Row,
        resources: Mapping[str, ResourceUse | Unknown] | None = None,
        columns: dict[str, str] | UnsetType = UNSET,
    ) -> Self:
        """`resources` of its kernels and other `columns` of a tuned table are what `show` adds."""
        tuning, own = row.tuning, in_use(row)
        return fill(
            cls,
            tuning,
            row,
            id=row.id,
            layout=layout_of(tuning) or None,
            num_choices=None if tuning.num_choices is None else stats.tried(tuning),
            choices=[ChoiceJson.of(tuning, choice, resources) for choice in tuning.choices],
            measurement=MeasurementJson.of(tuning.measured),
            seconds=fill(SecondsJson, tuning.seconds),
            decided_by_rank=tuning.decided,
            apart=tuning.apart or None,
            in_use=own.hash if own else None,
            pinned=row.pin.pin.hash if row.pin else None,
            entry=EntryJson.of(tuning, columns),
            beside=[BesideJson.of(entry) for entry in row.beside],
            kernel=tuning.kernel or None,
            code=tuning.code or None,
            devices=[DeviceJson.of(device) for device in row.devices],
            **_share_members(row.share),
        )
