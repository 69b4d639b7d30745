"""`weir engine`: the embedded engine, with SGLang's HTTP interface."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weir.scripts.launch.settings import ConfigOption, load_settings, with_flags


def engine(
    model: Annotated[Path, typer.Option(help="Hugging Face folder: Qwen3, Qwen2 or Llama, safetensors.")],
    port: Annotated[int | None, typer.Option(help="Port to listen on.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32 or bfloat16.")] = None,
    weight_version: Annotated[
        str | None, typer.Option(help="Name of these weights; default: the model's manifest.json, else 0.")
    ] = None,
    ledger: Annotated[Path | None, typer.Option(help="JSON Lines file that gets every sampled token.")] = None,
    max_running: Annotated[int | None, typer.Option(help="Requests in the running batch.")] = None,
    max_model_len: Annotated[int | None, typer.Option(help="Prompt and output tokens of a request.")] = None,
    num_threads: Annotated[int | None, typer.Option(help="torch threads on a CPU.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of requests without one.")] = None,
    incremental_streaming_output: Annotated[
        bool | None, typer.Option("--incremental-streaming-output", help="Stream only new tokens in each chunk.")
    ] = None,
    config: ConfigOption = None,
) -> None:
    """Serve a model on a CPU or GPU with SGLang's HTTP interface."""
    given = {
        "port": port,
        "host": host,
        "device": device,
        "dtype": dtype,
        "weight_version": weight_version,
        "ledger": ledger,
        "max_running": max_running,
        "max_model_len": max_model_len,
        "num_threads": num_threads,
        "seed": seed,
        "incremental_streaming_output": incremental_streaming_output,
    }
    chosen = with_flags(load_settings(config).engine, given, "weir engine")

    from weir.engine.server import serve

    serve(model, chosen)
