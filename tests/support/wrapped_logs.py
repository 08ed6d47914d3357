"""A plain log as loggers, containers, schedulers and terminals would have written it."""

from __future__ import annotations

import json
from collections.abc import Callable

STATS = (
    '{"num_choices": 20, "num_triton_choices": 19, "best_kernel": "triton_mm_7", '
    '"best_kernel_desc": "ACC_TYPE=\'tl.float32\', BLOCK_K=64, num_warps=4", '
    '"best_time": 0.0431, "best_triton_pos": 0}'
)


def _row(name: str, ms: str, share: str, block: int) -> str:
    return (
        f"  {name} {ms} ms {share}% ACC_TYPE='tl.float32', ALLOW_TF32=False, BLOCK_K={block}, "
        f"FLOAT32_PRECISION=\"'ieee'\", GROUP_M=8, matrix_instr_nonkdim=16, num_stages=2, "
        f"num_warps={block // 16}"
    )


PLAIN = [
    "Autotune Choices Stats:",
    STATS,
    "AUTOTUNE mm(4096x2304, 2304x768)",
    "strides: [2304, 1], [1, 2304]",
    "dtypes: torch.bfloat16, torch.bfloat16",
    _row("triton_mm_7", "0.0431", "100.0", 64),
    "  mm 0.0447 ms 96.4% ",
    _row("triton_mm_3", "0.0478", "90.2", 32),
    "SingleProcess AUTOTUNE benchmarking takes 0.4113 seconds and 2.1180 seconds precompiling"
    " for 20 choices",
    "epoch 1 loss 3.1",
    "AUTOTUNE addmm(1024x3072, 1024x768, 768x3072)",
    "strides: [0, 1], [768, 1], [1, 768]",
    "dtypes: torch.float16, torch.float16, torch.float16",
    _row("triton_mm_21", "0.0120", "100.0", 128),
    "  bias_addmm 0.0131 ms 91.6% ",
    "SubProcess AUTOTUNE benchmarking takes 0.2207 seconds and 1.5000 seconds precompiling"
    " for 2 choices",
    "epoch 2 loss 3.0",
]
"""Two tables, between lines of a training."""

Wrap = Callable[[str, int], str]
"""A line, and how many came before it."""


def _clock(n: int) -> str:
    return f"10:11:{12 + n // 4:02d}.{n * 7919 % 1000:03d}"


def _day(n: int) -> str:
    return f"2026-11-02T{_clock(n)}456Z"


def _json(**fields: object) -> Callable[[str, int], str]:
    """One object a line: `TEXT` is the line, `N` a counter, `ID` a random one, `WHEN` a time."""

    def wrap(line: str, n: int) -> str:
        values: dict[str, object] = {
            "TEXT": line,
            "TEXTLINE": line + "\n",
            "N": n,
            "ID": f"{n * 2654435761 % (1 << 32):08x}",
            "WHEN": _day(n),
            "EPOCH": 1793617872123 + 250 * n,
            "SECONDS": 12.25 + n * 0.015,
            "PREFIXED": f"2026-11-02 {_clock(n)} | INFO     | train:run:88 - {line}\n",
        }

        def filled(value: object) -> object:
            if isinstance(value, dict):
                return {key: filled(item) for key, item in value.items()}
            if isinstance(value, list):
                return [filled(item) for item in value]
            return values.get(value, value) if isinstance(value, str) else value

        return json.dumps(filled(fields))

    return wrap


def _nested(inner: Wrap, **fields: object) -> Wrap:
    outer = _json(**fields)
    return lambda line, n: outer(inner(line, n), n)


def _prefix(text: str) -> Wrap:
    return lambda line, n: (
        (
            text.replace("WHEN", _day(n))
            .replace("CLOCK", _clock(n))
            .replace("ID", f"{n * 40503 % 65536:04x}")
            .replace("N.N", f"{n * 1.5:.6f}")
        )
        + line
    )


def _around(before: str, after: str) -> Wrap:
    return lambda line, n: f"{before}{line}{after}"


WRAPPED: dict[str, Wrap] = {
    "docker": _json(log="TEXTLINE", stream="stderr", time="WHEN"),
    "fluent-bit": _json(
        date=1793617872.1, log="TEXT", kubernetes={"pod_name": "t-0", "labels": {"app": "train"}}
    ),
    "gcp": _json(
        insertId="ID", textPayload="TEXT", timestamp="WHEN", severity="ERROR", labels={"a": "b"}
    ),
    "journalctl": _json(
        __CURSOR="ID",
        __REALTIME_TIMESTAMP="EPOCH",
        _PID="4711",
        MESSAGE="TEXT",
        __MONOTONIC_TIMESTAMP="N",
    ),
    "loguru": _json(
        text="PREFIXED",
        record={"elapsed": {"seconds": "SECONDS"}, "message": "TEXT", "level": {"no": 20}},
    ),
    "structlog": _json(event="TEXT", level="info", timestamp="WHEN"),
    "ecs": _json(**{"@timestamp": "WHEN", "log.level": "info", "message": "TEXT", "ecs": {}}),
    "otel": _json(
        timeUnixNano="EPOCH",
        body={"stringValue": "TEXT"},
        attributes=[{"key": "log.record.uid", "value": {"stringValue": "ID"}}],
    ),
    "datadog": _json(id="ID", content={"message": "TEXT", "tags": ["a:b"]}, type="log"),
    "loki": _json(streams=[{"stream": {"pod": "a"}, "values": [["EPOCH", "TEXT"]]}]),
    "counter": _json(n="N", deep={"er": [{"x": [["TEXT"]]}]}),
    "zap": _json(level="info", ts="SECONDS", caller="x/y.go:12", msg="TEXT"),
    "json in json": _nested(_json(event="TEXT", ts="WHEN"), log="TEXTLINE", time="WHEN"),
    "json in json in json": _nested(
        _nested(_json(event="TEXT"), message="TEXT", id="ID"), log="TEXTLINE"
    ),
    "prefixed json": lambda line, n: f"web-1  | {_json(msg='TEXT', t='WHEN')(line, n)}",
    "ascii json": lambda line, n: json.dumps({"m": f"\x1b[36m{line}\x1b[0m", "é": "ü"}),
    "logfmt": lambda line, n: (
        f"time={_day(n)} level=info msg={json.dumps(line, ensure_ascii=False)} n={n}"
    ),
    "cri": _prefix("WHEN stderr F "),
    "kubectl": _prefix("[pod/t-0/main] "),
    "stern": _prefix("t-0 main "),
    "compose": _prefix("trainer-0  | "),
    "pdsh": _prefix("node7: "),
    "ray": lambda line, n: f"\x1b[36m(RayTrainWorker pid=4711, ip=10.0.0.1)\x1b[0m {line}",
    "syslog": _prefix("Nov  2 CLOCK host train[4711]: "),
    "journal": _prefix("[   N.N] train[12]: "),
    "glog": _prefix("I1102 CLOCK 4711 x/y.py:526] [0/0] "),
    "random ids": _prefix("req=ID "),
    "python logging": _prefix("2026-11-02 CLOCK,123 - root - INFO - "),
    "slurm": _prefix("0: "),
    "torchx": _prefix("trainer/0 "),
    "sagemaker": _prefix("[1,mpirank:0,algo-1]<stderr>:"),
    "comment": _prefix("# "),
    "quote": _prefix("> "),
    "markdown": _around("    ", ""),
    "stderr behind": _around("", " [stderr]"),
    "colours": _around("\x1b[1;36m", "\x1b[0m"),
    "rsyslog": _around("#033[36m", "#033[0m"),
    "cat -v": _around("^[[36m", "^[[0m"),
    "python repr": _around(r"\x1b[36m", r"\x1b[0m"),
    "unicode escape": _around(r"\u001b[36m", r"\u001b[0m"),
    "no escape byte": _around("[36m", "[0m"),
    "crlf": _around("", "\r"),
    "yaml": lambda line, n: f"- {json.dumps(line)}",
    "csv": lambda line, n: f"{n},{json.dumps(line)},ok",
}


def wrapped(wrap: Wrap, lines: list[str] | None = None) -> str:
    return "".join(f"{wrap(line, n)}\n" for n, line in enumerate(lines or PLAIN))


def hard_wrapped(width: int) -> str:
    """Cut each line at `width`, as PowerShell does."""
    pieces = (line[at : at + width] for line in PLAIN for at in range(0, max(1, len(line)), width))
    return "".join(f"{piece}\n" for piece in pieces)
