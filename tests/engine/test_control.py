"""Pauses, new weights and versions while requests run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from support_calls import PROMPT, body_of, generate, logprobs_of, read_ledger, streamed, versions_of
from support_model import make_tiny_model
from support_servers import EngineFactory, ServerProcess, start_engine
from transformers import AutoModelForCausalLM

from weir.engine.config import EngineConfig
from weir.engine.server import first_version

LONG = 3000


@pytest.fixture(scope="session")
def other_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same shape as the tiny model, other weights."""
    return make_tiny_model(tmp_path_factory.mktemp("other") / "tiny", vocab_size=512, seed=42)


@pytest.fixture(scope="module")
def shared_engine(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One engine for the tests of this file."""
    started = start_engine(tiny_model_dir, folder=tmp_path_factory.mktemp("engine"))
    yield started
    started.stop()


@pytest.fixture
def server(shared_engine: ServerProcess, tiny_model_dir: Path) -> ServerProcess:
    """The shared engine as it was started: the tiny model as version 0, no pause, nothing running."""
    shared_engine.post("/abort_request", {"abort_all": True})
    shared_engine.post("/continue_generation")
    update(shared_engine, tiny_model_dir, "0")
    return shared_engine


def update(server: ServerProcess, folder: Path, version: str | None = None, **options: Any) -> None:
    answer = server.post("/update_weights_from_disk", {"model_path": str(folder), "weight_version": version} | options)
    assert answer["success"], answer


def checksum(server: ServerProcess) -> Any:
    return server.post("/weights_checker", {"action": "checksum"})["ranks"][0]["checksums"]


def own_logprobs(folder: Path, prompt: list[int], output: list[int]) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.inference_mode():
        logits = model(torch.tensor([prompt + output])).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(1, torch.tensor(output)[:, None])[:, 0]


def test_pause_abort_ends_what_runs_with_its_partial_output(server: ServerProcess) -> None:
    with streamed(server, body_of(rid="partial", max_new_tokens=LONG)) as call:
        call.wait_for(5)
        assert server.post("/pause_generation", {"mode": "abort"}) == {
            "message": "Generation paused successfully.",
            "status": "ok",
        }
        last = call.last()
    assert last["meta_info"]["finish_reason"] == {
        "type": "abort",
        "message": "Aborted",
        "status_code": None,
        "err_type": None,
    }
    assert 5 <= len(last["output_ids"]) < LONG
    assert [line["token"] for line in read_ledger(server, "partial")] == last["output_ids"]


@pytest.mark.parametrize("mode", ["abort", "retract", "in_place"])
def test_new_requests_wait_through_a_pause_and_health_stays_good(server: ServerProcess, mode: str) -> None:
    server.post("/pause_generation", {"mode": mode})
    with streamed(server, body_of(rid=f"waits-{mode}")) as call:
        while server.get("/server_info")["internal_states"][0]["num_waiting"] == 0:
            pass
        (rank,) = server.get("/v1/loads")["loads"]
        assert (rank["num_running_reqs"], rank["num_waiting_reqs"]) == (0, 1)
        assert server.client.get("/health").status_code == 200
        assert read_ledger(server, f"waits-{mode}") == []
        server.post("/continue_generation")
        assert len(call.last()["output_ids"]) == 16


def test_retract_keeps_the_tokens_and_recomputes_the_rest_under_the_new_weights(
    server: ServerProcess, tiny_model_dir: Path, other_model_dir: Path
) -> None:
    with streamed(server, body_of(rid="two", max_new_tokens=400)) as call:
        call.wait_for(20)
        server.post("/pause_generation", {"mode": "retract"})
        update(server, other_model_dir, "3")
        server.post("/continue_generation")
        answer = call.last()
    versions = versions_of(answer)
    before = versions.count("0")
    assert versions == ["0"] * before + ["3"] * (400 - before)
    assert 20 <= before < 400
    assert answer["meta_info"]["num_retractions"] == 1
    ids = answer["output_ids"]
    expected = torch.cat(
        [
            own_logprobs(tiny_model_dir, PROMPT, ids[:before]),
            own_logprobs(other_model_dir, PROMPT + ids[:before], ids[before:]),
        ]
    )
    torch.testing.assert_close(torch.tensor(logprobs_of(answer)), expected, atol=1e-5, rtol=0)
    assert [line["version"] for line in read_ledger(server, "two")] == versions


def test_in_place_goes_on_exactly_where_it_stopped(server: ServerProcess) -> None:
    undisturbed = generate(server, max_new_tokens=400)
    with streamed(server, body_of(max_new_tokens=400)) as call:
        call.wait_for(20)
        server.post("/pause_generation", {"mode": "in_place"})
        server.post("/continue_generation")
        answer = call.last()
    assert answer["output_ids"] == undisturbed["output_ids"]
    assert answer["meta_info"]["num_retractions"] == 0


def test_weights_swapped_without_a_pause_split_the_running_answer_into_two_spans(
    server: ServerProcess, other_model_dir: Path
) -> None:
    with streamed(server, body_of(rid="swap", max_new_tokens=LONG)) as call:
        call.wait_for(5)
        update(server, other_model_dir, "1")
        call.wait_for(len(call.chunks[-1]["output_ids"]) + 200)
        server.post("/abort_request", {"rid": "swap"})
        answer = call.last()
    assert [span["version"] for span in answer["meta_info"]["weight_versions"]] == ["0", "1"]
    assert answer["meta_info"]["weight_version"] == "1"
    assert [line["version"] for line in read_ledger(server, "swap")] == versions_of(answer)


def test_new_weights_answer_as_an_engine_started_on_them(
    server: ServerProcess, engine_server: EngineFactory, tiny_model_dir: Path, other_model_dir: Path
) -> None:
    fresh = engine_server(other_model_dir)
    old = generate(server)
    update(server, other_model_dir, "1")
    assert server.get("/model_info")["weight_version"] == "1"
    assert server.get("/model_info")["model_path"] == str(other_model_dir)
    assert checksum(server) == checksum(fresh)
    assert generate(server)["output_ids"] == generate(fresh)["output_ids"] != old["output_ids"]
    update(server, tiny_model_dir)
    assert generate(server)["output_ids"] == old["output_ids"]
    assert server.get("/get_model_info")["weight_version"] == "1"


def test_sharded_and_untied_weights_are_taken_too(engine_server: EngineFactory, tmp_path: Path) -> None:
    first = make_tiny_model(tmp_path / "first", tied=False, seed=1)
    second = make_tiny_model(tmp_path / "second", tied=False, seed=2)
    whole = load_file(second / "model.safetensors")
    names = sorted(whole)
    (second / "model.safetensors").unlink()
    shards = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for shard, held in shards.items():
        save_file({name: whole[name] for name in held}, second / shard, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: shard for shard, held in shards.items() for name in held}}
    (second / "model.safetensors.index.json").write_text(json.dumps(index))
    server = engine_server(first)
    update(server, second, "5")
    assert checksum(server) == checksum(engine_server(second))


def _other_shape(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.1.mlp.up_proj.weight"] = torch.zeros(3, 64)
    save_file(tensors, folder / "model.safetensors")


def _tensor_missing(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, folder / "model.safetensors")


def _tensor_unknown(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | {"model.extra.weight": torch.zeros(2)}, folder / "model.safetensors")


def _integers(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"].to(torch.int32)
    save_file(tensors, folder / "model.safetensors")


def _not_a_number(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"][3] = float("nan")
    save_file(tensors, folder / "model.safetensors")


def _cut_short(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def _not_safetensors(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"\0" * 100)


def _gone(folder: Path) -> None:
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_other_shape, "model.layers.1.mlp.up_proj.weight has shape [3, 64]"),
        (_tensor_missing, "model.norm.weight"),
        (_tensor_unknown, "model.extra.weight is no tensor of the served model"),
        (_integers, "model.norm.weight is of torch.int32"),
        (_not_a_number, "model.norm.weight holds values that are not finite"),
        (_cut_short, "cannot read model.safetensors"),
        (_not_safetensors, "cannot read model.safetensors"),
        (_gone, "no model.safetensors"),
    ],
)
def test_wrong_weights_are_refused_whole_and_the_old_ones_go_on(
    server: ServerProcess,
    other_model_dir: Path,
    tmp_path: Path,
    spoil: Callable[[Path], None],
    said: str,
) -> None:
    before, answer_before = checksum(server), generate(server)
    folder = tmp_path / "wrong"
    shutil.copytree(other_model_dir, folder)
    spoil(folder)
    refused = server.client.post("/update_weights_from_disk", json={"model_path": str(folder), "weight_version": "5"})
    assert refused.status_code == 400
    assert refused.json()["success"] is False
    assert said in refused.json()["message"]
    assert checksum(server) == before
    assert server.get("/model_info")["weight_version"] == "0"
    assert generate(server)["output_ids"] == answer_before["output_ids"]


def test_an_update_leaves_a_pause_as_it_is(server: ServerProcess, other_model_dir: Path) -> None:
    server.post("/pause_generation")
    update(server, other_model_dir, "1", keep_pause=True, abort_all_requests=True)
    assert server.get("/server_info")["internal_states"][0]["paused"] == "abort"
    server.post("/continue_generation")
    assert versions_of(generate(server)) == ["1"] * 16


def test_renaming_the_version_aborts_unless_told_not_to(server: ServerProcess) -> None:
    with streamed(server, body_of(max_new_tokens=LONG)) as call:
        call.wait_for(5)
        answer = server.post("/update_weight_version", {"new_version": "8"})
        assert answer == {"success": True, "message": "Weight version updated to 8", "new_version": "8"}
        assert call.last()["meta_info"]["finish_reason"]["type"] == "abort"
    with streamed(server, body_of(rid="kept", max_new_tokens=LONG)) as call:
        call.wait_for(5)
        server.post("/update_weight_version", {"new_version": "9", "abort_all_requests": False})
        call.wait_for(len(call.chunks[-1]["output_ids"]) + 200)
        server.post("/abort_request", {"abort_all": True})
        assert {"8", "9"} == set(versions_of(call.last()))


def test_the_cache_is_flushed_only_when_nobody_needs_it(server: ServerProcess) -> None:
    with streamed(server, body_of(rid="busy", max_new_tokens=LONG)) as call:
        call.wait_for(5)
        assert server.client.post("/flush_cache").status_code == 400
        server.post("/abort_request", {"rid": "busy"})
        call.last()
    assert server.client.post("/flush_cache").status_code == 200
    assert len(generate(server)["output_ids"]) == 16


def test_aborting_an_unknown_rid_touches_nobody(server: ServerProcess) -> None:
    with streamed(server, body_of(rid="call_12", max_new_tokens=200)) as call:
        call.wait_for(1)
        server.post("/abort_request", {"rid": "call_1"})
        server.post("/abort_request", {})
        assert call.last()["meta_info"]["finish_reason"]["type"] == "length"


def test_the_first_version_is_the_flag_then_the_manifest_then_zero(tmp_path: Path) -> None:
    folder = make_tiny_model(tmp_path / "model", version=17)
    assert first_version(folder, EngineConfig(weight_version="18")) == "18"
    assert first_version(folder, EngineConfig()) == "17"
    (folder / "manifest.json").write_text("not json")
    assert first_version(folder, EngineConfig()) == "0"
    (folder / "manifest.json").unlink()
    assert first_version(folder, EngineConfig()) == "0"


def test_info_routes_have_what_routers_and_trainers_read(engine_server: EngineFactory, tiny_model_dir: Path) -> None:
    server = engine_server(None, "--max-model-len", "512")
    for path in ("/server_info", "/get_server_info"):
        info = server.get(path)
        assert (info["model_path"], info["tp_size"], info["dp_size"]) == (str(tiny_model_dir), 1, 1)
    for path in ("/model_info", "/get_model_info"):
        assert server.get(path)["is_generation"] is True
    (card,) = server.get("/v1/models")["data"]
    assert (card["id"], card["max_model_len"]) == (str(tiny_model_dir), 512)
    assert server.client.get("/health_generate").status_code == 200


def test_a_wrong_control_body_is_400(server: ServerProcess) -> None:
    for path, body in (
        ("/pause_generation", {"mode": "later"}),
        ("/update_weights_from_disk", {}),
        ("/update_weight_version", {}),
        ("/weights_checker", {"action": "snapshot"}),
    ):
        assert server.client.post(path, json=body).status_code == 400
