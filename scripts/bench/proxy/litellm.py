"""LiteLLM as the peer of the proxy's benchmark: an environment of its own, and nothing but forwarding switched on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from weir.scripts.launch.errors import UsageError
from weir.scripts.launch.servers import Server

VERSION = "1.106.2"


def make_environment(folder: Path) -> None:
    """Install LiteLLM's proxy into a virtual environment, unless it is there. Raises `UsageError`."""
    if (folder / "bin" / "litellm").exists():
        return
    print(f"installing litellm[proxy] {VERSION} into {folder} …", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    command = [str(folder / "bin" / "pip"), "install", "--quiet", f"litellm[proxy]=={VERSION}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode or not (folder / "bin" / "litellm").exists():
        raise UsageError(f"cannot install LiteLLM into {folder}: {done.stderr.strip()[-500:]}; name another folder")


def litellm_server(environment: Path, upstream_url: str, port: int, folder: Path) -> Server:
    """One worker that forwards the model `weir` to an OpenAI-compatible upstream."""
    config = folder / "litellm.yaml"
    config.write_text(
        "model_list:\n  - model_name: weir\n    litellm_params:\n      model: openai/weir\n"
        f"      api_base: {upstream_url}/v1\n      api_key: none\n"
    )
    argv = [str(environment / "bin" / "litellm"), "--config", str(config), "--host", "127.0.0.1", "--port", str(port)]
    return Server(
        name="litellm",
        argv=[*argv, "--num_workers", "1", "--telemetry", "False"],
        ready_url=f"http://127.0.0.1:{port}/health/readiness",
        log_path=folder / "litellm.log",
        environment={
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
            "LITELLM_LOG": "ERROR",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
    )
