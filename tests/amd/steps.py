"""The parts of a run, each through the real commands. A part returns one line for the summary, adds
to `data` what a developer needs, and raises Failed with the reason if something does not work."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.disk.layout import Layout
from tests.amd.commands import ROOT, Commands, Failed, Finished, generated_code

_OWN = "# rocm-tui choice"
_MOST_CRASHES, _RESTART = 5, 45.0
"""A run of `numerics` begins anew that often, and with as many seconds left."""


@dataclass
class Part:
    """A part while it runs: its commands, what it adds to the report, what earlier parts saw."""

    commands: Commands
    seen: dict[str, Any]
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """`needs` is the seconds that it usually takes at most on a GPU. A flexible step takes more if
    there is time. `why_not` returns why it is not run here, or an empty text."""

    name: str
    title: str
    needs: float
    work: Callable[[Part], str]
    why_not: Callable[[Mapping[str, Any]], str] = lambda seen: ""


def torch_and_device(part: Part) -> str:
    facts = _facts(part, "torch")
    part.data.update(facts)
    part.seen["gpus"] = len(facts["gpus"])
    gpus = ", ".join(sorted({f"{gpu['name']} ({gpu['arch']})" for gpu in facts["gpus"]}))
    built = f"HIP {facts['hip']}" if facts["hip"] else f"CUDA {facts['cuda']}"
    says = f"torch {facts['torch']}, " + (built if facts["hip"] or facts["cuda"] else "CPU only")
    if part.commands.kind == "cpu":
        if (facts["hip"] or facts["cuda"]) and not part.seen.get("device given"):
            raise Failed(
                f"{says}: it sees no GPU (/dev/kfd: {facts['kfd']}); this run uses the CPU"
            )
        return f"{says}; this run uses the CPU"
    if not facts["available"]:
        raise Failed(f"{says}: it sees no GPU")
    part.data["product"] = _facts(part, "product")
    if part.data["product"]["error"] > 0.01:
        raise Failed(f"{says}: a product on {gpus} is wrong")
    return f"{says}, {len(facts['gpus'])} × {gpus}"


def doctor(part: Part) -> str:
    document = part.commands.tui_json(part.commands.cache("empty"), "doctor", codes=(0, 1))
    checks = document["checks"]
    part.data["checks"] = [
        " ".join(filter(None, (x["verdict"], f"{x['name']}:", x["value"], x["advice"])))
        for x in checks
    ]
    broken = [f"{x['name']}: {x['value']}" for x in checks if x["verdict"] not in ("ok", "note")]
    if broken:
        raise Failed("; ".join(broken))
    named = {check["name"]: check["value"] for check in checks}
    return f"hooks {named.get('hooks')}, templates {named.get('templates')}"


def sensors(part: Part) -> str:
    part.data.update(_facts(part, "sensors"))
    silent = [f"{x['label']}: {x['error']}" for x in part.data["devices"] if "error" in x]
    state = part.data["under_load"]
    if part.commands.kind != "cpu" and part.data["devices"][0]["label"] == "CPU":
        silent.append("no GPU in /sys/class/drm and none by NVML")
    if silent or "error" in state:
        raise Failed("; ".join([*silent, *filter(None, [state.get("error")])]))
    units = {"clock_mhz": "MHz", "power_w": "W", "temperature_c": "°C"}
    values = [f"{state[name]:.0f} {unit}" for name, unit in units.items() if state[name]]
    if not values and part.commands.kind != "cpu":
        raise Failed("no clock, power or temperature under load")
    count = len(part.data["devices"])
    return f"{count} device{'s' * (count != 1)}, under load: {', '.join(values) or 'not exposed'}"


def watch(part: Part) -> str:
    """Tune under `run` while the screen watches."""
    commands = part.commands
    cache = commands.cache("stock")
    with commands.screen(cache) as screen:
        ran = commands.tui(cache, "run", "--", *commands.program())
        part.data["run says"] = ran.stderr.splitlines()[-6:]
        _check_results(part, ran)
        tunings = _tunings(part, cache)
        screen.wait_for([tuning["op"] for tuning in tunings], min(30, commands.left))
        screen.quit()
    names = ", ".join(f"{x['op']} {len(_timed(x))} choices" for x in tunings)
    return f"the screen shows what `run` records: {names}"


def pin(part: Part) -> str:
    """Pin another choice than the winner: stock PyTorch calls it, both proofs agree, and `unpin`
    restores the cache file."""
    commands = part.commands
    cache = _tuned_cache(part)
    pinned = {x["op"]: (x["id"], _other(x)) for x in _tunings(part, cache)}
    files = {path: path.read_bytes() for path in _cache_files(cache)}
    wrong: list[str] = []
    part.data["pins"] = {op: choice["hash"] for op, (_, choice) in pinned.items()}
    try:
        for id_, choice in pinned.values():
            commands.tui(cache, "pin", id_, choice["hash"])
        ran = commands.run(commands.program(), cache, env={"TORCH_LOGS": "output_code"})
        _check_results(part, ran)
        wrong += _uncalled(part, ran, {op: choice["hash"] for op, (_, choice) in pinned.items()})
        rebuilt = commands.tui_json(cache, "verify", codes=(0, 1))["pins"]
        traced = commands.tui_json(cache, "verify", "--", *commands.program(), codes=(0, 1))["pins"]
        for name, pins in (("verify", rebuilt), ("verify -- CMD", traced)):
            part.data[name] = [{k: x.get(k) for k in ("ok", "reason", "proof")} for x in pins]
            wrong += [f"{name}: {x['reason']}" for x in pins if not x["ok"]]
    finally:
        commands.tui(cache, "unpin", "--all")
    if {path: path.read_bytes() for path in _cache_files(cache)} != files:
        wrong.append("after `unpin` the cache file differs")
    if wrong:
        raise Failed("; ".join(wrong))
    return f"{', '.join(pinned)}: stock PyTorch calls the pin, `verify` agrees, `unpin` restores"


def measure(part: Part) -> str:
    cache = _tuned_cache(part)
    tuning = _tunings(part, cache)[0]
    return _measured(part, cache, tuning["id"], ["#1", "#2"])


def templates(part: Part) -> str:
    """Our kernels are offered, right, pinned, called and verified; and how fast they are."""
    commands = part.commands
    cache = commands.cache("templates")
    env = {"ROCM_TUI_TEMPLATE_BUDGET": "2"}
    run = ("run", "--templates", "--check", "--", *commands.program())
    ran = commands.tui(cache, *run, env=env)
    part.data["run says"] = ran.stderr.splitlines()[-6:]
    _check_results(part, ran)
    pinned: dict[str, str] = {}
    wrong: list[str] = []
    ids: dict[str, tuple[str, str]] = {}
    for tuning in _tunings(part, cache):
        timed = _timed(tuning)
        ours = [choice for choice in timed if _is_ours(choice)]
        if not ours:
            wrong.append(f"{tuning['op']}: none of our kernels was timed")
            continue
        pinned[tuning["op"]] = ours[0]["hash"]
        theirs = next(choice for choice in timed if not _is_ours(choice))
        ids[tuning["op"]] = tuning["id"], theirs["hash"]
        commands.tui(cache, "pin", tuning["id"], ours[0]["hash"])
    if not pinned:
        raise Failed("; ".join(wrong))
    ran = commands.tui(cache, *run, env={**env, "TORCH_LOGS": "output_code"})
    _check_results(part, ran)
    wrong += _uncalled(part, ran, pinned)
    verified = commands.tui_json(cache, "verify", codes=(0, 1), env=env)["pins"]
    part.data["verify"] = [{k: x.get(k) for k in ("ok", "reason", "proof")} for x in verified]
    wrong += [f"verify: {x['reason']}" for x in verified if not x["ok"]]
    says = [
        _measured(part, cache, id_, [pinned[op], theirs], op) for op, (id_, theirs) in ids.items()
    ]
    if wrong:
        raise Failed("; ".join(wrong))
    return f"called, right and verified: {'; '.join(says)}"


def devices(part: Part) -> str:
    """One tuning and one pin for all GPUs of a kind."""
    commands = part.commands
    cache = commands.cache("devices")
    ran = commands.tui(cache, "run", "--all-devices", "--", *commands.program("--all-devices"))
    _check_results(part, ran)
    tuning = _tunings(part, cache)[0]
    other = _other(tuning)
    commands.tui(cache, "pin", tuning["id"], other["hash"])
    ran = commands.run(commands.program("--all-devices"), cache, env={"TORCH_LOGS": "output_code"})
    _check_results(part, ran)
    wrong = _uncalled(part, ran, {tuning["op"]: other["hash"]})
    verified = commands.tui_json(cache, "verify", codes=(0, 1))["pins"]
    part.data["verify"] = [{k: x.get(k) for k in ("ok", "reason", "proof")} for x in verified]
    wrong += [f"verify: {x['reason']}" for x in verified if not x["ok"]]
    tried = {row["device"] for row in part.data["results"][-1]}
    if len(tried) != part.seen["gpus"]:
        wrong.append(f"the program ran on {len(tried)} of {part.seen['gpus']} devices")
    if wrong:
        raise Failed("; ".join(wrong))
    return f"one pin is called on {', '.join(sorted(tried))}"


def ranks(part: Part) -> str:
    words = ["--starts", "1", "--torchrun", "--gpu", "--only", "agree"]
    words += ["--ranks", str(part.seen["gpus"])]
    done = part.commands.run([part.commands.python, "-m", "tests.ranks", *words])
    part.data["counts"] = done.stdout.splitlines()
    return done.stdout.splitlines()[-1]


def numerics(part: Part) -> str:
    """Try every template against float64 until the time is up; go on behind a kernel that ends the
    process."""
    python = [part.commands.python, "-W", "ignore", "-m", "tests.gpu.numerics"]
    options = ["--names", "--device", part.commands.kind]
    crashes: list[str] = []
    part.data["crashes"] = crashes
    after: list[str] = []
    while True:
        seconds = _budget(part.commands.left)
        limits = ["--seconds", f"{seconds:.0f}", "--compile-seconds", f"{0.6 * seconds:.0f}"]
        try:
            done = part.commands.run([*python, *options, *limits, *after], codes=(0, 1))
            break
        except Failed as failure:
            tried = re.findall(r"^trying (.*), seed \d+$", failure.tail, re.MULTILINE)
            kernel = tried[-1] if tried else "before the first kernel"
            crashes.append(f"{kernel}: {failure}")
            part.data.setdefault("printed", []).append(failure.tail)
            again = failure.outcome == "crashed" and tried and len(crashes) < _MOST_CRASHES
            if not again or part.commands.left < _RESTART:
                raise Failed("; ".join(crashes), failure.outcome) from failure
            after = ["--after", tried[-1]]
    lines = done.stdout.splitlines()
    part.data["wrong"] = [line for line in lines if line.startswith(("WRONG", "    "))][:60]
    part.data["counts"] = lines[-3:] if len(lines) > 2 else lines
    says = "; ".join(part.data["counts"][:0:-1])
    if crashes:
        raise Failed(f"{'; '.join(crashes)}; the others: {says}", "crashed")
    if done.code:
        raise Failed(says or done.reason, tail=done.tail)
    return says


def speed(part: Part) -> str:
    """Our kernels beside those of torch's libraries, one table a kind."""
    cpu = part.commands.kind == "cpu"
    says: list[str] = []
    wrong: list[str] = []
    for kinds in (["smoke"],) if cpu else (["skinny"], ["square", "small", "fused"]):
        table = part.commands.folder / f"{kinds[0]}.md"
        seconds = _budget(part.commands.left / (1 if len(kinds) > 1 or cpu else 2))
        script = str(ROOT / "benchmarks" / "bench_templates.py")
        words = ["--gpu-only", "--choices", "2", "--seconds", f"{seconds:.0f}", "--out", str(table)]
        python = [part.commands.python, "-W", "ignore", script]
        try:
            done = part.commands.run([*python, *words, "--only", *kinds])
        finally:
            if table.exists():
                part.data[kinds[0]] = table.read_text().splitlines()
        result = json.loads(done.stdout.splitlines()[-1])
        if not (timed := result["gpu"]):
            raise Failed(result["gpu_off"], tail=done.tail)
        errors = [
            f"{row['shape']} {choice['template']} {choice['config']}: {choice['error']}"
            for row in timed["shapes"]
            for choice in row["choices"]
            if "error" in choice
        ]
        part.data[f"{kinds[0]} errors"] = [*timed["failed"], *errors][:40]
        wrong += [error for error in errors if "are wrong" in error]
        ratios = [
            statistics.median(row["torch_cold_us"]) / statistics.median(row["ours_cold_us"])
            for row in timed["shapes"]
            if row.get("ours_cold_us")
        ]
        if not ratios:
            raise Failed(
                f"no kernel of ours was timed: {[*timed['failed'], *errors, 'no time'][0]}"
            )
        says.append(f"{kinds[0]} {min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} cases")
    if wrong:
        raise Failed("; ".join(wrong[:5]))
    return f"torch's time over ours, cold: {'; '.join(says)}"


def _needs_gpus(seen: Mapping[str, Any]) -> str:
    return "" if seen.get("gpus", 0) > 1 else "needs two GPUs or more"


STEPS = (
    Step("torch", "torch and its devices", 15, torch_and_device),
    Step("doctor", "`rocm-tui doctor`", 25, doctor),
    Step("sensors", "sensors, idle and under load", 15, sensors),
    Step("watch", "`run` and the screen", 60, watch),
    Step("pin", "`pin`, `verify`, `unpin` on stock PyTorch", 60, pin),
    Step("measure", "`measure`", 25, measure),
    Step("templates", "`run --templates`", 100, templates),
    Step("devices", "one pin on all devices", 60, devices, _needs_gpus),
    Step("ranks", "ranks that agree", 100, ranks, _needs_gpus),
    Step("numerics", "every template against float64", 40, numerics),
    Step("speed", "templates beside torch's libraries", 40, speed),
)


def _budget(left: float) -> float:
    """Return the seconds that a program may use by its own clock: it starts before that, and what
    it does last may take longer."""
    return max(5.0, 0.8 * left - 15)


def _facts(part: Part, name: str) -> Any:
    done = part.commands.run([part.commands.python, "-m", "tests.amd.facts", name])
    return json.loads(done.stdout.splitlines()[-1])


def _tuned_cache(part: Part) -> Path:
    """Return the cache directory of `watch`. Without one, stock PyTorch tunes now."""
    cache = part.commands.cache("stock")
    if not _cache_files(cache):
        _check_results(part, part.commands.run(part.commands.program(), cache))
    return cache


def _tunings(part: Part, cache: Path) -> list[dict[str, Any]]:
    """Return the tunings of products with two timed choices or more; add them to the report."""
    rows = part.commands.tui_json(cache, "ls", codes=(0, 1)).get("tunings", [])
    tunings = [row for row in rows if row["op"] in ("bmm", "mm") and len(_timed(row)) > 1]
    part.data["tunings"] = {
        row["op"]: [f"{x['name'] or x['hash']} {x['ms'] * 1000:.2f} µs" for x in _timed(row)]
        for row in tunings
    }
    part.data["failed choices"] = [
        f"{row['op']} {x['name'] or x['hash']}: {x['reason']}"
        for row in rows
        for x in row["choices"]
        if x["failed"]
    ]
    if not tunings:
        raise Failed("`ls` has no tuning with two timed choices")
    return tunings


def _timed(tuning: Mapping[str, Any]) -> list[dict[str, Any]]:
    choices = [x for x in tuning["choices"] if x["ms"] and x["hash"] and not x["failed"]]
    return sorted(choices, key=lambda choice: choice["ms"])


def _is_ours(choice: Mapping[str, Any]) -> bool:
    return str(choice["hash"]).startswith("rocm_")


def _is_aten(op: str, choice_hash: str) -> bool:
    return choice_hash.startswith(f"{op}-")


def _other(tuning: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fastest choice that generated code shows to be another than the winner."""
    winner, *others = _timed(tuning)
    aten = _is_aten(tuning["op"], winner["hash"])
    differing = [x for x in others if _is_aten(tuning["op"], x["hash"]) != aten]
    return (differing or others)[0]


def _check_results(part: Part, ran: Finished) -> None:
    """Raise Failed unless every product that the program printed is right."""
    rows = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith('{"product')]
    part.data.setdefault("results", []).append(rows)
    if not rows:
        raise Failed("the program printed no result", tail=ran.tail)
    wrong = [f"{x['product']} on {x['device']} ({x['error']:.2g})" for x in rows if not x["right"]]
    if wrong:
        raise Failed(f"wrong numbers: {', '.join(wrong)}")


def _uncalled(part: Part, ran: Finished, pinned: Mapping[str, str]) -> list[str]:
    """Return the pins that the generated code does not call, and tunings that were repeated."""
    wrong = []
    for product, code in generated_code(ran.stderr).items():
        choice = pinned.get(product.split()[0])
        if choice is None:
            continue
        if choice.startswith("rocm_"):
            called = f"{_OWN} {choice} " in code
        else:
            called = ("extern_kernels." in code) == _is_aten(product.split()[0], choice)
        if not code:
            wrong.append(f"{product}: no generated code was seen")
        elif not called:
            wrong.append(f"{product}: the generated code does not call {choice}")
    repeated = [x["product"] for x in part.data["results"][-1] if x["benchmarked"]]
    if repeated and not any(choice.startswith("rocm_") for choice in pinned.values()):
        wrong.append(f"benchmarked again in spite of the pin: {', '.join(repeated)}")
    return wrong


def _measured(part: Part, cache: Path, id_: str, choices: Iterable[str], op: str = "") -> str:
    budget = f"{min(8.0, max(2.0, part.commands.left / 4)):.0f}"
    words = ["measure", id_, *choices, "--budget", budget, "--yes"]
    measured = part.commands.tui_json(cache, *words, codes=(0, 1))["measurement"]
    keys = ("rounds", "caches", "trouble", "clock_mhz", "power_w", "temperature_c", "throttled")
    rows = [
        {key: row[key] for key in ("name", "hash", "ms", "low", "high", "verdict")}
        for row in measured["choices"]
    ]
    part.data.setdefault("measured", []).append(
        {**{key: measured[key] for key in keys}, "choices": rows, "failed": measured["failed"]}
    )
    if measured["failed"]:
        raise Failed(f"`measure`: {measured['failed'][0]['reason']}")
    times = [f"{row['name']} {1000 * row['ms']:.2f} µs ({row['verdict']})" for row in rows]
    return f"{op}{': ' * bool(op)}{', '.join(times)}"


def _cache_files(cache: Path) -> list[Path]:
    return sorted(path for path in Layout(cache).autotune.glob("[!.]*") if path.is_file())
