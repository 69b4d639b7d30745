"""Weights that arrive in buckets: what the engine takes, what it refuses, and that nothing changes before the end."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from support_calls import generate
from support_model import make_tiny_model
from support_servers import ServerProcess, start_engine

from weir.engine.transfer.bucket import (
    BadBucket,
    FlattenedTensorMetadata,
    laid_out,
    packed,
    shared_bytes,
    split,
    unpacked,
)


@pytest.fixture(scope="module")
def server(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    started = start_engine(tiny_model_dir, folder=tmp_path_factory.mktemp("engine"))
    yield started
    started.stop()


def bucket_of(tensors: dict[str, torch.Tensor]) -> tuple[torch.Tensor, list[FlattenedTensorMetadata]]:
    entries = laid_out([(name, tensor.dtype, tensor.shape) for name, tensor in tensors.items()])
    flat = shared_bytes(entries[-1].end_idx)
    for name, place in split(flat, entries):
        place.copy_(tensors[name])
    return flat, entries


def send(server: ServerProcess, tensors: dict[str, torch.Tensor], **settings: Any) -> Any:
    flat, entries = bucket_of(tensors)
    body = {"serialized_named_tensors": [packed(flat, entries)], "load_format": "flattened_bucket"} | settings
    answer = server.client.post("/update_weights_from_tensor", json=body)
    assert answer.status_code == (200 if answer.json().get("success") else 400)
    return answer.json()


def test_an_update_is_served_whole_and_only_from_its_end_on(server: ServerProcess, tmp_path: Path) -> None:
    weights = load_file(make_tiny_model(tmp_path / "other", seed=42) / "model.safetensors")
    names = sorted(weights)
    before = generate(server)["output_ids"]
    server.post("/begin_weight_update", {"selector": "all"})
    assert send(server, {name: weights[name] for name in names[:3]}, weight_version="5")["success"]
    refused = server.client.post("/end_weight_update")
    assert refused.status_code == 400
    assert f"the update lacks {len(names) - 3} of" in refused.json()["message"]
    assert "the update lacks" in server.client.post("/weights_checker", json={"staged": True}).json()["message"]
    assert send(server, {name: weights[name] for name in names[3:]})["success"]
    staged = server.post("/weights_checker", {"action": "checksum", "staged": True})["ranks"]
    assert server.post("/weights_checker")["ranks"] != staged
    assert (generate(server)["output_ids"], server.get("/model_info")["weight_version"]) == (before, "0")
    server.post("/end_weight_update")
    assert server.get("/model_info")["weight_version"] == "5"
    assert server.post("/weights_checker")["ranks"] == staged
    assert generate(server)["output_ids"] != before


def test_a_discarded_update_is_forgotten(server: ServerProcess) -> None:
    served = server.post("/weights_checker")
    server.post("/begin_weight_update")
    server.post("/end_weight_update", {"discard": True})
    assert server.client.post("/end_weight_update").status_code == 400
    assert server.post("/weights_checker") == served


def test_what_does_not_fit_is_refused(server: ServerProcess) -> None:
    assert "between begin_weight_update" in send(server, {"x": torch.zeros(2)})["message"]
    server.post("/begin_weight_update")
    assert "x is no tensor of the served model" in send(server, {"x": torch.zeros(2)})["message"]
    name = "model.norm.weight"
    assert f"{name} has shape [2], the served model [64]" in send(server, {name: torch.zeros(2)})["message"]
    assert "not finite" in send(server, {name: torch.full((64,), float("nan"))})["message"]
    server.post("/end_weight_update", {"discard": True})


def test_a_group_that_nobody_serves_and_one_that_is_not_known_are_refused(server: ServerProcess) -> None:
    server.post("/begin_weight_update")
    body = {"names": ["a"], "dtypes": ["float32"], "shapes": [[2]], "group_name": "none"}
    answer = server.client.post("/update_weights_from_distributed", json=body)
    assert (answer.status_code, "no group 'none'" in answer.json()["message"]) == (400, True)
    assert server.client.post("/update_weights_from_distributed", json=body | {"shapes": []}).status_code == 400
    assert server.client.post("/destroy_weights_update_group", json={"group_name": "none"}).status_code == 400
    server.post("/end_weight_update", {"discard": True})


class Evil:
    """Pickled, it would print when it is opened."""

    def __reduce__(self) -> Any:
        return print, ("opened",)


@pytest.mark.parametrize(
    "held", [Evil(), {"flattened_tensor": Evil(), "metadata": []}, {"metadata": []}, [], {"flattened_tensor": 1}]
)
def test_a_bucket_runs_nothing_and_names_nothing_but_tensors(held: Any) -> None:
    with pytest.raises(BadBucket):
        unpacked(base64.b64encode(pickle.dumps(held)).decode())
    with pytest.raises(BadBucket):
        unpacked("not base64!")


@pytest.mark.parametrize(("start", "end"), [(0, 4), (-8, 0), (4, 12), (2, 10)])
def test_an_entry_that_lies_about_its_bytes_is_refused(start: int, end: int) -> None:
    entry = FlattenedTensorMetadata("a", torch.Size([2]), torch.float32, start, end, 8)
    with pytest.raises(BadBucket, match="a is said to lie at bytes"):
        list(split(torch.zeros(8, dtype=torch.uint8), [entry]))
