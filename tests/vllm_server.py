"""A real vLLM for tests, on a CPU: WEIR_TEST_VLLM names the folder that tests/install-vllm-cpu made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support_servers import ServerProcess, find_free_port, start_server

VARIABLE = "WEIR_TEST_VLLM"

needs_vllm = pytest.mark.skipif(
    not os.environ.get(VARIABLE), reason=f"needs a real vLLM: set {VARIABLE} to its environment's folder"
)


def start_vllm(model: Path, *, folder: Path) -> ServerProcess:
    """Start vLLM on `model` and wait until it answers /health; its log is written to `folder`."""
    port = find_free_port()
    python = Path(os.environ[VARIABLE]) / "bin" / "python"
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--port", str(port)]
    home = folder / "vllm-home"
    home.mkdir(exist_ok=True)
    return start_server(
        [*command, "--served-model-name", "weir", "--dtype", "float32", "--max-model-len", "1024", "--enforce-eager"],
        port=port,
        log_path=folder / f"vllm-{port}.log",
        env={"HOME": str(home), "HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"},
        limit_s=240,
    )
