"""What a round keeps of its tokens: the trainer's own numbers, and why calls were left out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support_rounds import PROMPT_TOKENS, Judge, add_group, add_sessions, make_record, model_logprobs, trainer_config

from weir.store.config import StoreConfig
from weir.store.parquet.round_tokens import TRAINED, RoundCall, read_round_call, round_tokens_file
from weir.store.reader import load_calls
from weir.store.records.call_record import FinishReason
from weir.trainer.trainer import Trainer


def trained(store: StoreConfig, model: Path, judge: Judge, **settings: object) -> bytes:
    """The weights of a round over one group of four calls, and a call that was cut off."""
    add_group(store, model, "g", [0.0, 0.3, 1.0, 1.0])
    trainer = Trainer(trainer_config(judge, optimizer_steps=1, **settings), store, model_path=model)
    try:
        report = trainer.run_round()
    finally:
        trainer.close()
    assert report is not None
    return (report.path / "model.safetensors").read_bytes()


def kept(store: StoreConfig, call_id: str) -> RoundCall | None:
    return read_round_call(round_tokens_file(store.folder, 1), call_id)


def test_tokens_have_the_logprobs_and_advantages_that_the_trainer_computed(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge
) -> None:
    trained(store, tiny_model_dir, judge, keep_tokens="tokens", epochs=2)
    calls = [call for of_session in load_calls(store, [f"g-{i}" for i in range(4)]).values() for call in of_session]
    prompts, outputs = (np.stack([getattr(call, name) for call in calls]) for name in ("prompt_ids", "output_ids"))
    assert prompts.shape == (4, PROMPT_TOKENS)
    by_another_route = model_logprobs(tiny_model_dir, prompts, outputs)
    rewards = np.array([0.0, 0.3, 1.0, 1.0])
    for call, logprobs, reward in zip(calls, by_another_route, rewards, strict=True):
        found = kept(store, call.call_id)
        assert found is not None and found.left_out is None and found.trace is not None
        trace = found.trace
        np.testing.assert_allclose(trace.logprobs, logprobs, atol=1e-5, err_msg="of the first epoch, before any step")
        np.testing.assert_array_equal(trace.before, call.output_logprobs)
        assert set(trace.parts.tolist()) == {TRAINED}, "no ratio is far from 1 before the first step"
        assert (trace.entropies > 0).all() and (trace.entropies <= np.log(512) + 1e-5).all()
        assert found.advantage is not None and (trace.advantages == np.float32(found.advantage)).all()
        assert np.sign(found.advantage) == np.sign(reward - rewards.mean())


def test_a_call_that_is_left_out_has_its_reason_and_keeping_changes_no_weights(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, tmp_path: Path
) -> None:
    cut = make_record("call-cut", "cut", "h", [1, 2], [3, 4], [-1.0, -1.0], finish=FinishReason.ABORT)
    add_sessions(store, "h", [[cut]])
    with_tokens = trained(store, tiny_model_dir, judge, keep_tokens="tokens")
    found = kept(store, "call-cut")
    assert found is not None and (found.left_out, found.advantage, found.trace) == ("unfinished", None, None)
    other = StoreConfig(root=tmp_path / "other")
    add_sessions(other, "h", [[cut]])
    assert trained(other, tiny_model_dir, judge, keep_tokens="none") == with_tokens
    assert not round_tokens_file(other.folder, 1).exists()


@pytest.mark.parametrize("setting", [{}, {"keep_tokens": "calls"}])
def test_by_default_calls_have_their_advantage_and_no_token_is_kept(
    tiny_model_dir: Path, store: StoreConfig, judge: Judge, setting: dict[str, str]
) -> None:
    trained(store, tiny_model_dir, judge, **setting)
    found = kept(store, "call-g-2")
    assert found is not None and found.trace is None
    assert found.advantage is not None and found.advantage > 0
    assert kept(store, "call-unknown") is None
