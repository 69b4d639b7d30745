"""`weir train` with two real SGLang engines: one that only generates, one that is taken for training and returns."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from sglang_server import ENVIRONMENT, FLAGS, VARIABLE, needs_sglang
from support_live import running_cluster

ROUNDS = 3


@pytest.mark.sglang
@needs_sglang
def test_two_sglang_engines_generate_and_one_is_taken_for_training(tmp_path: Path, tiny_model_dir: Path) -> None:
    environment = ENVIRONMENT | {"HOME": str(tmp_path), "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false"}
    variables = ", ".join(f"{name} = {json.dumps(value)}" for name, value in environment.items())
    engine = f'kind = "sglang"\npython = "{os.environ[VARIABLE]}"\nargs = {json.dumps(FLAGS)}\nenv = {{ {variables} }}'
    with running_cluster(tmp_path, tiny_model_dir, names=("only", "both"), engine=engine) as cluster:
        train = cluster.train("--rounds", str(ROUNDS))
        answered, failed = cluster.call_until(lambda: train.poll() is not None)
        cluster.ended(600)
        assert failed == [] and answered > 0
        rounds = cluster.rounds()
        assert [row.weight_version for row in rounds] == list(range(1, ROUNDS + 1))
        groups = [group for row in rounds for group in row.group_ids]
        assert len(groups) == len(set(groups)) == 2 * ROUNDS
        assert cluster.sql("SELECT info FROM sessions WHERE status = 'failed'") == []
        phases = "SELECT member, count(*) FROM phases WHERE phase = 'train' GROUP BY ALL"
        assert dict(cluster.sql(phases)).keys() == {"both"}
        assert dict(cluster.sql(phases))["both"] >= ROUNDS
        assert cluster.in_rotation() == set(cluster.engine_urls)
        assert cluster.gate() == "open"
