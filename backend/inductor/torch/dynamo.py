"""Private names of torch for when it compiles: the callbacks of `torch/_dynamo/callback.py`.

Read in torch 2.8 to 2.15. `torch._dynamo.reset()` forgets them: compiles after it are not told of.
"""

from __future__ import annotations

from collections.abc import Callable


def watch_compiles(begun: Callable[..., None], ended: Callable[..., None]) -> None:
    """Call these when torch begins to compile, forward or backward, and when no compile is left.
    They must not raise."""
    from torch._dynamo.callback import callback_handler  # heavy: after torch imported it itself

    def begins(args: object = None) -> None:
        if getattr(getattr(args, "callback_trigger", None), "name", "") != "CUDAGRAPH_RECORDING":
            begun()

    callback_handler.register_start_callback(begins)
    callback_handler.register_end_callback(lambda args=None: ended())
