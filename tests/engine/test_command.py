"""`weir engine` as a command: what it refuses to serve, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support_calls import body_of, generate, streamed
from support_model import make_tiny_model
from support_servers import EngineFactory
from transformers import BertConfig, BertModel


def run_engine(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "weir.scripts.cli.main", "engine", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_a_folder_that_cannot_be_served_is_wrong_use_and_says_why(tmp_path: Path) -> None:
    empty = run_engine("--model", str(tmp_path))
    assert empty.returncode == 2
    assert f"no config.json in {tmp_path}" in empty.stderr

    small = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8)
    BertModel(small).save_pretrained(tmp_path / "bert")
    other = run_engine("--model", str(tmp_path / "bert"))
    assert other.returncode == 2
    assert "the embedded engine serves Qwen3ForCausalLM" in other.stderr

    sliding = make_tiny_model(tmp_path / "sliding")
    config = json.loads((sliding / "config.json").read_text())
    config |= {"use_sliding_window": True, "sliding_window": 16, "layer_types": ["full_attention", "sliding_attention"]}
    (sliding / "config.json").write_text(json.dumps(config))
    assert "sliding-window" in run_engine("--model", str(sliding)).stderr


def test_a_flag_out_of_range_is_wrong_use(tiny_model_dir: Path) -> None:
    wrong = run_engine("--model", str(tiny_model_dir), "--device", "tpu")
    assert wrong.returncode == 2
    assert "--device tpu" in wrong.stderr


def test_sigterm_answers_the_requests_in_flight_before_it_ends(engine_server: EngineFactory) -> None:
    server = engine_server()
    with streamed(server, body_of(max_new_tokens=4000)) as call:
        call.wait_for(5)
        server.process.send_signal(signal.SIGTERM)
        assert call.last()["meta_info"]["finish_reason"]["type"] == "abort"
    assert server.process.wait(60) == -signal.SIGTERM  # uvicorn takes the signal again once it is done


def test_bfloat16_is_served(engine_server: EngineFactory) -> None:
    server = engine_server(None, "--dtype", "bfloat16")
    assert server.get("/server_info")["dtype"] == "bfloat16"
    assert len(generate(server, max_new_tokens=20)["output_ids"]) == 20


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_gpu_gives_what_the_cpu_gives(engine_server: EngineFactory, dtype: str) -> None:
    on_gpu = engine_server(None, "--device", "cuda", "--dtype", dtype)
    answer = generate(on_gpu, max_new_tokens=40)
    if dtype == "float32":
        assert answer["output_ids"] == generate(engine_server(), max_new_tokens=40)["output_ids"]
    assert len(answer["output_ids"]) == 40
