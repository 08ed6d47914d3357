"""What a log says that TunableOp missed: tuned by PyTorch's own tuner, or why not."""

from __future__ import annotations

from asyncio import to_thread
from dataclasses import replace
from pathlib import Path

from backend.counted import counted
from backend.errors import StoreError
from rocm_tui.actions.cover import Missed
from rocm_tui.actions.tunableop import Wanted, wanted_in
from rocm_tui.errors import RocmTuiError
from rocm_tui.harmless import plain
from rocm_tui.jobs.queue import Job
from rocm_tui.tui import devices
from rocm_tui.tui.host import Host
from rocm_tui.tui.screens.dialogs import ConfirmScreen
from rocm_tui.tui.untuned_lists import NO_GPU, RESULTS, UntunedList, list_order


async def ask_to_tune_missed(host: Host, missed: Missed) -> Job | None:
    """Say what of a log's misses TunableOp can tune; the job, if the person says yes."""
    if host.asking:
        return None
    place = Path(missed.path)
    results = str(place.with_name(RESULTS))
    command = host.shell.tune_list(missed.path, results, None, None)
    try:
        wanted = await to_thread(wanted_in, [place])
    except (RocmTuiError, StoreError, OSError) as error:
        host.refuse(str(error))
        return None
    if why := _why_none(missed, wanted, command):
        host.refuse(why)
        return None
    if host.asking:
        return None
    products = counted(len(wanted.lines), "product")
    lines = [f"All that {plain(place.name)} says it missed, each in turn, on a GPU."]
    lines += [f"{count:,} left out: {reason}" for reason, count in wanted.left_out]
    lines += ["What other tuners missed there is not tuned by it."] * bool(wanted.others)
    lines.append(f"What is fastest is put into {plain(results)}.")
    title = f"Let TunableOp tune {products}"
    question = ConfirmScreen(title, "Start", lines, command=lambda note: command)
    if await host.push_screen_wait(question) is None:
        return None
    order = list_order(UntunedList(missed.path, results), None, None, "", host.layout)
    return host.jobs.submit(replace(order, command=command))


def _why_none(missed: Missed, wanted: Wanted, command: str) -> str:
    """Why nothing of it is tuned here, and what to run; empty where something is."""
    if not wanted.lines:
        left = "".join(f" ({count:,} {reason})" for reason, count in wanted.left_out[:1])
        return plain(
            f"TunableOp can tune none of what {Path(missed.path).name} missed{left}: "
            f"`{missed.command} --write LIST` writes what its own tuner takes"
        )
    if devices.may_have_gpus():
        return ""
    return f"{NO_GPU}, and TunableOp tunes on GPUs; there: `{command}`"
