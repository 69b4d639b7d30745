"""Exports load in their targets: the snippets of docs/exports.md, run with the real `datasets` and verl.

WEIR_TEST_TRAINERS names an environment that has them, as .ci/run makes it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from weir.scripts.cli.main import app
from weir.store.catalog.catalog import Catalog
from weir.store.catalog.rows import RewardRow
from weir.store.config import StoreConfig

ENVIRONMENT = os.environ.get("WEIR_TEST_TRAINERS")
PAGE = (Path(__file__).parents[3] / "docs" / "exports.md").read_text()
TRL, VERL = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
pytestmark = pytest.mark.skipif(ENVIRONMENT is None, reason="WEIR_TEST_TRAINERS names no environment")


@pytest.fixture
def folder(config: StoreConfig, record: Any, make_call: Any) -> Path:
    """A group of two rewarded sessions of different lengths, exported for both."""
    record(
        [
            make_call("a", [1, 2], [3], session_id="s", at=10_000),
            make_call("b", [1, 2, 3, 9], [4, 5], session_id="s", at=30_000),
            make_call("c", [1, 2, 7], [6], session_id="t", at=10_000),
        ]
    )
    catalog = Catalog.open(config)
    for session, value in (("s", 1.0), ("t", 0.0)):
        catalog.register_session(session, "g", task={"task_id": "add"}, group_size=2, metadata={}, key_hash=None)
        catalog.add_rewards(
            [RewardRow(session_id=session, call_id=None, name="r", value=value, source="t", idempotency_key="k")]
        )
    catalog.close()
    for form in ("trl", "verl"):
        path = config.root.parent / f"{form}.parquet"
        done = CliRunner().invoke(app, ["export", "--root", str(config.root), "-f", form, "-o", str(path)])
        assert done.exit_code == 0, done.output
    return config.root.parent


def run(code: str, folder: Path) -> Any:
    """Run code in the exports' folder with the environment's Python; returns its last line of output as JSON."""
    python = Path(str(ENVIRONMENT)) / "bin" / "python"
    done = subprocess.run([python, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_datasets_loads_what_a_rollout_of_trl_is(folder: Path) -> None:
    say = "\nimport json; print(json.dumps([{k: list(v) for k, v in rollout.items()}, list(rows['reward'])]))"
    rollout, rewards = run(TRL + say, folder)
    assert rollout == {
        "prompt_ids": [[1, 2], [1, 2, 7]],
        "completion_ids": [[3, 9, 4, 5], [6]],
        "logprobs": [[-0.5, 0.0, -0.5, -1.0], [-0.5]],
        "env_mask": [[1, 0, 1, 1], [1]],
    }
    assert rewards == [1.0, 0.0]


def test_verl_makes_a_dataproto_and_its_own_advantages_of_it(folder: Path) -> None:
    more = """
import json
from verl.trainer.ppo.core_algos import compute_grpo_outcome_advantage

advantages, _ = compute_grpo_outcome_advantage(
    data.batch["rm_scores"], data.batch["response_mask"], data.non_tensor_batch["uid"], norm_adv_by_std_in_grpo=False
)
print(json.dumps([data.batch["prompts"].tolist(), data.batch["responses"].tolist(), advantages.tolist()]))
"""
    prompts, responses, advantages = run(VERL + more, folder)
    assert prompts == [[0, 1, 2], [1, 2, 7]] and responses == [[3, 9, 4, 5], [6, 0, 0, 0]]
    assert advantages == [[0.5, 0.0, 0.5, 0.5], [-0.5, 0.0, 0.0, 0.0]]
