"""Products with the model's weights: in 16 bits only where these lose nothing, in float32 elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support_calls import PROMPT, generate, logprobs_of
from support_logits import chosen, reference_logits
from support_model import make_tiny_model
from support_servers import EngineFactory

from weir.engine.layers.projections import Halved, Projection

pytestmark = pytest.mark.skipif(
    "fbgemm" not in torch.backends.quantized.supported_engines, reason="this build of torch lacks FBGEMM"
)


def layer_of(weight: torch.Tensor, *, bias: float | None = None) -> torch.nn.Linear:
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight.data = weight.clone()
    if bias is not None:
        layer.bias.data.fill_(bias)
    return layer


def weights(seed: int, *shape: int) -> torch.Tensor:
    """Random weights that a checkpoint in bfloat16 could hold."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).bfloat16().float()


@pytest.mark.parametrize("num_rows", [1, 2, 7, 32, 33])
@pytest.mark.parametrize("factor", [1.0, 2.0**-20, 2.0**30], ids=["plain", "small", "large"])
@torch.inference_mode()
def test_products_are_those_of_float32(num_rows: int, factor: float) -> None:
    layers = [layer_of(weights(seed, 32 * seed, 64) * factor, bias=factor) for seed in (1, 2)]
    inputs = torch.randn(num_rows, 1, 64, generator=torch.Generator().manual_seed(3))
    expected = torch.cat([layer.double()(inputs.double()) for layer in layers], -1)
    product = Projection(*(layer.float() for layer in layers))(inputs)
    torch.testing.assert_close(product.double() / factor, expected / factor, atol=1e-4, rtol=0)


@torch.inference_mode()
def test_16_bits_are_used_only_where_every_weight_is_kept() -> None:
    kept = weights(1, 48, 64)
    assert Halved.of(kept, None) is not None
    assert Halved.of(torch.zeros(4, 4), None) is not None
    third = kept.clone()
    third[5, 5] = 1 / 3
    assert Halved.of(third, None) is None
    wide = kept.clone()
    wide[5, 5] = 2.0**-40  # next to weights of 1, no power of two brings both into the range
    assert Halved.of(wide, None) is None


@torch.inference_mode()
def test_adopting_follows_weights_from_16_bits_to_32_and_back() -> None:
    layer = layer_of(weights(1, 48, 64))
    projection, inputs = Projection(layer), torch.ones(1, 64)
    for changed in (weights(1, 48, 64) / 3, weights(2, 48, 64)):
        projection.adopt(projection.packing({layer.weight: changed}))
        assert torch.equal(layer.weight, changed)
        torch.testing.assert_close(projection(inputs)[0], changed.sum(-1), atol=1e-4, rtol=0)


def test_an_engine_with_weights_of_a_bfloat16_checkpoint_gives_the_models_own_logprobs(
    engine_server: EngineFactory, tmp_path: Path
) -> None:
    folder = make_tiny_model(tmp_path / "model", seed=3)
    file = folder / "model.safetensors"
    save_file({name: held.bfloat16() for name, held in load_file(file).items()}, file, metadata={"format": "pt"})
    answer = generate(engine_server(folder), max_new_tokens=40)
    logits = reference_logits(folder, PROMPT, answer["output_ids"])
    assert answer["output_ids"] == logits.argmax(-1).tolist()
    torch.testing.assert_close(
        torch.tensor(logprobs_of(answer)), chosen(logits, answer["output_ids"]), atol=1e-5, rtol=0
    )
