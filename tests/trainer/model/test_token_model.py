"""Which models the torch backend takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support_megatron_models import make_latent, make_moe

from weir.trainer.errors import TrainerUsageError
from weir.trainer.model.sharded_model import empty_model
from weir.trainer.model.token_model import load_model


@pytest.mark.parametrize(
    ("make", "changes", "named"),
    [
        (make_moe, {"final_logit_softcapping": 30.0}, "logprobs of this model family are not supported"),
        (make_latent, {"output_router_logits": True}, "a load-balancing loss"),
    ],
)
def test_what_is_not_computed_is_refused_by_name(
    tmp_path: Path, make: Callable[[Path], Path], changes: dict[str, Any], named: str
) -> None:
    folder = make(tmp_path)
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | changes))
    with pytest.raises(TrainerUsageError, match=named):
        load_model(folder, torch.device("cpu"))
    with pytest.raises(TrainerUsageError, match=named):
        empty_model(folder)
