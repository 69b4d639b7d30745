"""A round with the real kernel-evaluation server: real Triton candidates in, rewards back, weights changed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from support_rounds import add_sessions, make_record, model_logprobs
from support_servers import ServerProcess, find_free_port, start_server
from transformers import AutoTokenizer

from weir.kernel_eval.client import KernelTask
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.reader import connect
from weir.trainer.errors import TrainerUsageError
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.trainer import Trainer

EXAMPLES = Path(__file__).parents[2] / "kernel_eval"
RIGHT = (EXAMPLES / "example_relu_candidate.py").read_text()
CANDIDATES = {
    "right": RIGHT,
    "wrong": RIGHT.replace("tl.maximum", "tl.minimum"),
    "broken": RIGHT.replace("def relu(", "def relu("[:-1]),
    "torch_only": "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
    "        return torch.relu(x)\n",
}
TASK = KernelTask(
    task_id="relu", prompt="Write relu.", reference_src=(EXAMPLES / "example_relu_task.py").read_text(), family="relu"
)


@pytest.fixture
def real_judge(tmp_path: Path) -> Iterator[ServerProcess]:
    port = find_free_port()
    settings = {"port": port, "gpus": [], "concurrency": 2}
    command = [sys.executable, "-m", "weir.kernel_eval.server.main", json.dumps(settings)]
    server = start_server(command, port=port, log_path=tmp_path / "judge.log")
    yield server
    server.stop()


def add_candidates(store: StoreConfig, model_dir: Path, group_id: str) -> None:
    """A group with one session for each candidate, in the model's own tokens and logprobs."""
    tokenizer: Any = AutoTokenizer.from_pretrained(model_dir)
    prompt = np.asarray(tokenizer.encode(TASK.prompt))
    sessions = []
    for name, source in CANDIDATES.items():
        text = f"Here it is ({group_id}).\n```python\n{source}```"
        output = np.asarray(tokenizer.encode(text))
        logprobs = model_logprobs(model_dir, prompt[None], output[None])[0]
        call = make_record(
            f"call-{group_id}-{name}", f"{group_id}-{name}", group_id, prompt, output, logprobs, text=text
        )
        sessions.append([call])
    add_sessions(store, group_id, sessions, task=TASK)


def test_a_round_trains_on_the_verdicts_of_the_real_judge(
    tiny_model_dir: Path, store: StoreConfig, real_judge: ServerProcess
) -> None:
    for group_id in ("g1", "g2"):
        add_candidates(store, tiny_model_dir, group_id)
    config = TrainerConfig(kernel_eval_url=real_judge.url, tensorboard=False, device="cpu", num_correct_trials=2)

    timed = Trainer(
        config.model_copy(update={"rewards": TrainerConfig(rewards={"kernel_eval": {"performance": True}}).rewards}),
        store,
        model_path=tiny_model_dir,
    )
    with pytest.raises(TrainerUsageError, match="runs on the interpreter, which shows nothing about speed"):
        timed.run_round()
    timed.close()

    trainer = Trainer(config, store, model_path=tiny_model_dir)
    report = trainer.run_round()
    trainer.close()
    assert report is not None
    found = report.metrics
    assert (found["round"], found["groups"], found["judged_calls"], found["samples"]) == (1, 2, 8, 8)
    assert found["faults"] == {"output_mismatch": 2, "reward_hack": 2, "syntax_error": 2}
    assert found["correct"] == 0.25
    assert found["correct_at_k"]["4"] == 1.0
    assert found["reward_mean"] == pytest.approx((1.0 + 0.3 + 0.0 + 0.0) / 4)
    assert found["fresh_logprob_diff_max"] < 1e-4
    query = (
        "SELECT call_id, value FROM rewards WHERE call_id LIKE 'call-g1-%' AND name = 'kernel_eval' ORDER BY value DESC"
    )
    rewards = dict(connect(store).execute(query).fetchall())
    assert rewards == {f"call-g1-{name}": value for name, value in zip(CANDIDATES, (1.0, 0.3, 0.0, 0.0), strict=True)}

    before, after = (load_file(folder / "model.safetensors") for folder in (tiny_model_dir, report.path))
    assert any(not np.array_equal(before[name], after[name]) for name in before)
    catalog = Catalog.open(store)
    assert [row.state for row in catalog.rounds()] == ["committed"]
    catalog.close()
