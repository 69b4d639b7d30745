"""From an engine's routers to a round's steps: the engine's are disturbed, and its calls are trained on.

The engine chooses between experts with equal logits by noise that the trained model lacks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sglang_server import needs_sglang, start_sglang
from support_calls import read_ledger
from support_mixture import SESSIONS, add_rewards, add_sessions, make_torn, metrics_of_round
from support_proxy import RunningProxy, running_proxy
from support_servers import ServerProcess, start_engine

from weir.store.config import StoreConfig
from weir.store.records.call_record import unpack_ids, unpack_logprobs
from weir.trainer.errors import TrainerUsageError


def converse(proxy: RunningProxy) -> None:
    """Two turns in each session."""
    for name in SESSIONS:
        messages = [{"role": "user", "content": f"Add two vectors, {name}."}]
        for _ in range(2):
            body = {"model": "weir", "messages": messages, "max_tokens": 24, "ignore_eos": True}
            answer = proxy.post(f"/s/{name}/v1/chat/completions", body)
            assert answer.status_code == 200, answer.text
            said = answer.json()["choices"][0]["message"]["content"]
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "Again."}]


def recorded(root: Path, folder: Path, engine_model: Path, *, experts: bool) -> Path:
    """A store with two sessions of two turns each, whose tokens are those of the engine's ledger."""
    store = StoreConfig(root=root)
    add_sessions(store)
    engine = start_engine(engine_model, folder=folder)
    try:
        with running_proxy(root, engine_model, engine.url, record_routed_experts=experts) as proxy:
            converse(proxy)
            for record in proxy.records():
                ledger = read_ledger(engine, record.engine_rids[0])
                assert unpack_ids(record.output_ids).tolist() == [line["token"] for line in ledger]
                drawn = pytest.approx([line["logprob"] for line in ledger], abs=1e-6)
                assert unpack_logprobs(record.output_logprobs).tolist() == drawn
    finally:
        engine.stop()
    add_rewards(store)
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


@pytest.fixture
def sglang(tmp_path: Path) -> Iterator[ServerProcess]:
    disturbed = make_torn(tmp_path / "disturbed", noise_seed=7, tied=False)  # its Qwen3-MoE has a head of its own
    flags = ("--enable-return-routed-experts", "--weight-version", "0")
    started = start_sglang(disturbed, folder=tmp_path, arguments=flags)
    yield started
    started.stop()


@needs_sglang
@pytest.mark.sglang
def test_a_round_computes_the_logprobs_of_a_real_sglang_whose_experts_it_replays(
    sglang: ServerProcess, tmp_path: Path
) -> None:
    store = StoreConfig(root=tmp_path / "store")
    add_sessions(store)
    with running_proxy(store.root, tmp_path / "disturbed", sglang.url, record_routed_experts=True) as proxy:
        converse(proxy)
        said = httpx.get(proxy.url + "/metrics", trust_env=False).text
        assert "weir_routed_experts_missing_total 0.0" in said
        assert all(record.routed_choices == 4 for record in proxy.records())
    add_rewards(store)
    trained = make_torn(tmp_path / "trained", tied=False)
    replayed = metrics_of_round(store.root, trained, routing_replay=True)
    alone = metrics_of_round(store.root, trained)
    assert (replayed["samples"], replayed["fresh_tokens"], replayed["skipped"]) == (4, 96, {})
    assert replayed["fresh_logprob_diff_max"] < 1e-5
    assert alone["fresh_logprob_diff_max"] > 0.1
