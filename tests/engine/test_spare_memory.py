"""New weights are laid into the memory of those that are served no longer; what is served never changes by that."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support_model import make_tiny_model

from weir.engine.decoder import Decoder
from weir.engine.weights import checksums, load_model, read_weights


@pytest.fixture(params=[torch.float32, torch.bfloat16], ids=str)
def decoder(request: pytest.FixtureRequest, tiny_model_dir: Path) -> Decoder:
    model = load_model(tiny_model_dir, dtype=request.param, device=torch.device("cpu"))
    return Decoder(model, max_rows=1, max_length=8)


def served(decoder: Decoder) -> dict[str, str]:
    return checksums(dict(decoder.model.state_dict(keep_vars=True)))


def test_weights_use_the_memory_of_those_before_the_served_ones(decoder: Decoder, tmp_path: Path) -> None:
    folders = [make_tiny_model(tmp_path / str(seed), seed=seed) for seed in range(4)]
    held, expected = [], []
    for folder in folders:
        tensors = read_weights(folder, decoder.model)
        before = served(decoder)
        prepared = decoder.prepare(tensors)
        assert served(decoder) == before, "while new weights are laid out"
        decoder.adopt(prepared)
        held.append({tensor.data_ptr() for tensor in prepared.values().values()})
        expected.append(checksums(tensors))
        assert served(decoder) == expected[-1]
    assert held[0] == held[2] != held[1] == held[3]


def test_an_engine_that_gives_its_memory_back_keeps_no_spare(decoder: Decoder, tmp_path: Path) -> None:
    tensors = read_weights(make_tiny_model(tmp_path / "other", seed=1), decoder.model)
    for _ in range(2):
        decoder.adopt(decoder.prepare(tensors))
    assert decoder._spare is not None
    decoder.release()
    assert (decoder._spare, decoder._adopted) == (None, None)
    decoder.adopt(decoder.prepare(tensors))
    assert served(decoder) == checksums(tensors)
