"""Cold starts in processes that can be killed, and the renderer of the tiny model."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from renderers import create_renderer
from renderers.configs import Qwen3RendererConfig
from support_model import make_tokenizer
from support_processes import ended

from weir.trainer.settings.config import SftConfig
from weir.trainer.sft.cold_start import run_sft

TOKENIZER = make_tokenizer(512)


def renderer(**settings: Any) -> Any:
    """The tiny model's, which keeps what was thought in earlier turns."""
    return create_renderer(TOKENIZER, Qwen3RendererConfig(thinking_retention="all", **settings))


def sft_in_process(data: Path, model: Path, out: Path, *, kill_at: int | None, count_into: Path) -> int | None:
    """A cold start in a process of its own, with a checkpoint after every step; its exit code.

    It is killed with SIGKILL when it has called so many functions, Python's and C's; the number of its calls goes into
    a file.
    """
    return ended(_sft, data, model, out, kill_at, count_into)


def _sft(data: Path, model: Path, out: Path, kill_at: int | None, count_into: Path) -> None:
    config = SftConfig(epochs=2, warmup_steps=2, device="cpu", checkpoint_steps=1, validation_share=0.2)
    calls = 0

    def on_call(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")
        if calls == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.setprofile(on_call)
    run_sft(config, data=data, model=model, out=out, renderer=renderer())
    sys.setprofile(None)
    count_into.write_text(str(calls))
