"""A real SGLang engine for tests, where one is installed: WEIR_TEST_SGLANG names its environment's folder.

It runs on a CPU, with the flags that make it give what a GPU would; it is a target to compare with, not a way to
serve.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support_servers import ServerProcess, find_free_port, start_server

VARIABLE = "WEIR_TEST_SGLANG"
FORKED = Path(__file__).with_name("sglang_forked.py")
UNPINNED = Path(__file__).with_name("sglang_unpinned.py")
WITH_PINNED_MEMORY = {"--enable-lora", "--enable-return-routed-experts"}  # flags of SGLang that ask for such memory
FLAGS = (
    *("--device", "cpu", "--disable-overlap-schedule", "--attention-backend", "torch_native"),
    *("--sampling-backend", "pytorch", "--grammar-backend", "none", "--dtype", "float32"),
    *("--max-total-tokens", "16384", "--mem-fraction-static", "0.5", "--disable-cuda-graph", "--skip-server-warmup"),
)

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "SGLANG_USE_CPU_ENGINE": "1",
    "OMP_NUM_THREADS": "1",
}

needs_sglang = pytest.mark.skipif(
    not os.environ.get(VARIABLE), reason=f"needs a real SGLang: set {VARIABLE} to its environment's folder"
)


def start_sglang(
    model: Path | str, *, folder: Path, arguments: tuple[str, ...] = (), port: int | None = None
) -> ServerProcess:
    """Start SGLang on `model` and wait until it answers /health; its log is written to `folder`."""
    environment = Path(os.environ[VARIABLE])
    port = port or find_free_port()
    script = FORKED if WITH_PINNED_MEMORY.isdisjoint(arguments) else UNPINNED
    command = [str(environment / "bin" / "python"), str(script), "--model-path", str(model)]
    home = folder / "sglang-home"
    home.mkdir(exist_ok=True)
    return start_server(
        [*command, "--host", "127.0.0.1", "--port", str(port), *FLAGS, *arguments],
        port=port,
        log_path=folder / f"sglang-{port}.log",
        env={
            "HOME": str(home),
            "TMPDIR": str(home),
            **ENVIRONMENT,
            # /health would draw a token, and a paused engine would look dead.
            "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false",
        },
        limit_s=240,
    )
