"""The engine gives its memory back and takes it again, measured by what the system says its process holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support_calls import PROMPT, body_of, generate, logprobs_of, streamed, versions_of
from support_model import make_tiny_model
from support_servers import ServerProcess, start_engine

MODEL_BYTES = 4 * 16 * 1024 * (4 * 1024 // 2 + 1024 + 3 * 2048)  # of the layers' projections, in float32
RELEASE, RESUME = "/release_memory_occupation", "/resume_memory_occupation"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough that its weights are most of what an engine holds."""
    return make_tiny_model(tmp_path_factory.mktemp("model") / "wide", hidden_size=1024, num_layers=16)


@pytest.fixture(scope="module")
def running(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    started = start_engine(model, folder=tmp_path_factory.mktemp("engine"))
    yield started
    started.stop()


@pytest.fixture
def server(running: ServerProcess, model: Path) -> ServerProcess:
    """The engine with the model's weights as version 0, no pause, nothing running."""
    running.post("/abort_request", {"abort_all": True})
    running.post("/pause_generation", {"mode": "abort"})
    load(running, model, "0")
    running.post("/continue_generation")
    return running


def load(server: ServerProcess, folder: Path, version: str) -> None:
    body = {"model_path": str(folder), "weight_version": version}
    assert server.post("/update_weights_from_disk", body)["success"]


def held_bytes(server: ServerProcess) -> int:
    return int(psutil.Process(server.process.pid).memory_info().rss)


def refused(server: ServerProcess, path: str, body: dict[str, Any] | None = None) -> str:
    answer = server.client.post(path, json=body or {})
    assert answer.status_code == 400, answer.text
    return answer.text


def test_weights_are_given_back_and_the_same_weights_give_the_same_answers(server: ServerProcess, model: Path) -> None:
    before = generate(server)
    awake = held_bytes(server)
    server.post("/pause_generation", {"mode": "retract"})
    assert server.post(RELEASE, {"tags": ["weights", "kv_cache"]})["released"] == ["kv_cache", "weights"]
    assert server.get("/server_info")["internal_states"][0]["released_memory"] == ["kv_cache", "weights"]
    assert held_bytes(server) < awake - MODEL_BYTES
    assert server.post(RELEASE)["released"] == ["kv_cache", "weights"]

    assert server.post(RESUME, {"tags": ["weights"]})["released"] == ["kv_cache"]
    load(server, model, "0")
    assert server.post(RESUME, {"tags": ["kv_cache"]})["released"] == []
    server.post("/continue_generation")
    assert logprobs_of(generate(server)) == logprobs_of(before)


def test_no_token_is_sampled_without_weights(server: ServerProcess, model: Path) -> None:
    server.post("/pause_generation", {"mode": "abort"})
    server.post(RELEASE)
    with streamed(server, body_of()) as call:
        assert "update them, then continue" in refused(server, "/continue_generation")
        server.post(RESUME)
        assert "update them, then continue" in refused(server, "/continue_generation")
        assert "none have come since" in refused(server, "/weights_checker")
        load(server, model, "4")
        server.post("/continue_generation")
        assert set(versions_of(call.last())) == {"4"}


def test_a_retracted_call_goes_on_under_the_weights_that_come(server: ServerProcess, tmp_path: Path) -> None:
    other = make_tiny_model(tmp_path / "other", hidden_size=1024, num_layers=16, seed=7)
    with streamed(server, body_of(max_new_tokens=60)) as call:
        call.wait_for(3)
        assert "call /pause_generation first" in refused(server, RELEASE)
        server.post("/pause_generation", {"mode": "in_place"})
        assert "pause with mode retract" in refused(server, RELEASE)
        server.post("/pause_generation", {"mode": "retract"})
        server.post(RELEASE)
        load(server, other, "1")  # without asking for the memory first: it is taken
        server.post("/continue_generation")
        answer = call.last()
    versions = versions_of(answer)
    assert len(versions) == 60
    assert versions[0] == "0"
    assert versions[-1] == "1"
    output = answer["output_ids"]
    first_new = versions.index("1")
    later = generate(server, PROMPT + output[:first_new], max_new_tokens=60 - first_new)
    assert later["output_ids"] == output[first_new:]


def test_weights_that_cannot_be_read_leave_the_engine_without_and_the_next_ones_serve(
    server: ServerProcess, model: Path, tmp_path: Path
) -> None:
    server.post("/pause_generation", {"mode": "abort"})
    server.post(RELEASE)
    assert "no model.safetensors" in refused(server, "/update_weights_from_disk", {"model_path": str(tmp_path)})
    assert "update them, then continue" in refused(server, "/continue_generation")
    load(server, model, "2")
    server.post("/continue_generation")
    assert set(versions_of(generate(server))) == {"2"}


def test_tags_that_do_not_exist_are_refused_by_name(server: ServerProcess) -> None:
    server.post("/pause_generation", {"mode": "abort"})
    assert "cuda_graphs" in refused(server, RELEASE, {"tags": ["cuda_graphs"]})
    server.post("/continue_generation")
