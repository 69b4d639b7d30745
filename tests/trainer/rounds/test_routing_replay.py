"""From an engine's routers to a round's steps: the embedded engine's are disturbed, and its calls are trained on.

The engine chooses between experts with equal logits by noise that the trained model lacks.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from support_calls import read_ledger
from support_mixture import make_torn
from support_proxy import running_proxy
from support_servers import start_engine

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.rows import RewardRow
from weir.store.config import StoreConfig
from weir.store.records.call_record import unpack_ids, unpack_logprobs
from weir.trainer.errors import TrainerUsageError
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.trainer import Trainer

SESSIONS = ("one", "two")


def metrics_of_round(root: Path, model: Path, **more: Any) -> dict[str, Any]:
    """A round over a copy of the store."""
    copied = shutil.copytree(root, root.with_name(f"{root.name}-{len(list(root.parent.iterdir()))}"))
    config = TrainerConfig(
        groups_per_round=1,
        optimizer_steps=1,
        train_truncated=True,
        tensorboard=False,
        device="cpu",
        rewards={"told": {"stored": True}},
        **more,
    )
    trainer = Trainer(config, StoreConfig(root=copied), model_path=model)
    try:
        report = trainer.run_round()
    finally:
        trainer.close()
    assert report is not None
    return dict(report.metrics)


def finish(store: StoreConfig) -> None:
    catalog = Catalog.open(store)
    for number, name in enumerate(SESSIONS):
        reward = RewardRow(
            session_id=name, call_id=None, name="told", value=float(number), source="test", idempotency_key=name
        )
        catalog.add_rewards([reward])
        catalog.finish_session(name, status="done", info={})
    catalog.close()


def recorded(root: Path, folder: Path, engine_model: Path, *, experts: bool) -> Path:
    """A store with two sessions of two turns each, whose tokens are those of the engine's ledger."""
    store = StoreConfig(root=root)
    catalog = Catalog.open(store)
    for name in SESSIONS:
        catalog.register_session(name, "g", task={}, group_size=2, metadata={}, key_hash=None)
    catalog.close()
    engine = start_engine(engine_model, folder=folder)
    try:
        with running_proxy(root, engine_model, engine.url, record_routed_experts=experts) as proxy:
            for name in SESSIONS:
                messages = [{"role": "user", "content": f"Add two vectors, {name}."}]
                for _ in range(2):
                    body = {"model": "weir", "messages": messages, "max_tokens": 24, "ignore_eos": True}
                    answer = proxy.post(f"/s/{name}/v1/chat/completions", body)
                    assert answer.status_code == 200, answer.text
                    said = answer.json()["choices"][0]["message"]["content"]
                    messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "Again."}]
            for record in proxy.records():
                ledger = read_ledger(engine, record.engine_rids[0])
                assert unpack_ids(record.output_ids).tolist() == [line["token"] for line in ledger]
                drawn = pytest.approx([line["logprob"] for line in ledger], abs=1e-6)
                assert unpack_logprobs(record.output_logprobs).tolist() == drawn
    finally:
        engine.stop()
    finish(store)
    return root


def test_a_round_computes_the_engines_logprobs_where_it_replays_its_experts(
    tmp_path: Path, tiny_model_dir: Path
) -> None:
    trained, disturbed = make_torn(tmp_path / "trained"), make_torn(tmp_path / "disturbed", noise_seed=7)
    root = recorded(tmp_path / "store", tmp_path, disturbed, experts=True)
    replayed = metrics_of_round(root, trained, routing_replay=True)
    alone = metrics_of_round(root, trained)
    assert (replayed["samples"], replayed["fresh_tokens"], replayed["skipped"]) == (4, 96, {})
    assert replayed["fresh_logprob_diff_max"] < 1e-5
    assert alone["fresh_logprob_diff_max"] > 0.1
    with pytest.raises(TrainerUsageError, match="this model is qwen3"):  # before anything is claimed
        metrics_of_round(root, tiny_model_dir, routing_replay=True)


def test_calls_without_experts_are_left_out_and_counted(tmp_path: Path) -> None:
    disturbed = make_torn(tmp_path / "disturbed", noise_seed=7)
    root = recorded(tmp_path / "store", tmp_path, disturbed, experts=False)
    found = metrics_of_round(root, disturbed, routing_replay=True)
    assert (found["samples"], found["skipped"]) == (0, {"unrouted": 4})
