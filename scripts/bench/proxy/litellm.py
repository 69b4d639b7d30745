"""LiteLLM as the peer of the proxy's benchmark, with nothing but forwarding enabled."""

from __future__ import annotations

from pathlib import Path

from weir.scripts.launch.servers import Server

REQUIREMENT = "litellm[proxy]==1.106.2"


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
