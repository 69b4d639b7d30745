"""Rounds on a real language model: agents' calls through proxy, router and a bfloat16 engine; trained; published.

The engine computes in bfloat16 and the trainer in float32, from the same weights: their logprobs differ by rounding, by
BFLOAT16_MEAN on average and by BFLOAT16_MAX at the worst token.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support_servers import ServerProcess, start_engine
from support_stack import Stack, running_stack
from transformers import AutoModelForCausalLM

from weir.store.config import StoreConfig
from weir.store.reader import connect, load_calls
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.trainer import RoundReport, Trainer

BFLOAT16_MEAN, BFLOAT16_MAX = 0.1, 1.0  # nats; found: 0.05 on average over 84 tokens
SESSIONS, TOKENS = 4, 12
QUESTIONS = ("Nenne eine Stadt in Frankreich 🇫🇷.", "Και στην Ιταλία;")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A group that an engine answered, in a store that nobody writes to; the engine still runs."""

    model: Path
    engine: ServerProcess
    store: Path

    def copy(self, folder: Path) -> StoreConfig:
        """A store of one's own with the same group."""
        shutil.copytree(self.store, folder / "store")
        return StoreConfig(root=folder / "store")


@pytest.fixture(scope="module")
def recorded(smollm2_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    folder = tmp_path_factory.mktemp("real")
    engine = start_engine(smollm2_dir, folder=folder, arguments=("--dtype", "bfloat16"))
    try:
        with running_stack(folder, model=smollm2_dir, engine_urls=[engine.url]) as stack:
            record_group(stack)
        yield Recorded(model=smollm2_dir, engine=engine, store=folder / "store")
    finally:
        engine.stop()


def record_group(stack: Stack) -> None:
    """Sessions of two turns with a reward each; the last one's second turn truncates its sampling."""
    group = None
    for number in range(SESSIONS):
        asked = {"group_size": SESSIONS} | ({"group": group} if group else {})
        session = stack.control("POST", "/weir/sessions", asked)
        group, name = session["group"], session["session"]
        messages: list[dict[str, Any]] = []
        for turn, question in enumerate(QUESTIONS):
            messages.append({"role": "user", "content": question})
            sampling = {"top_p": 0.9} if (number, turn) == (SESSIONS - 1, 1) else {}
            messages.append(answered(session, {"messages": messages, "seed": number, **sampling}))
        reward = {"session": name, "name": "given", "value": number / SESSIONS, "source": "test"}
        stack.control("POST", "/weir/rewards", reward | {"idempotency_key": name})
        stack.control("POST", f"/weir/sessions/{name}/finish", {})


def answered(session: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """The assistant's message of a chat call in a session."""
    url, headers = f"{session['base_url']}/chat/completions", {"authorization": f"Bearer {session['api_key']}"}
    asked = {"model": "weir", "max_tokens": TOKENS, "temperature": 1.0, **body}
    answer = httpx.post(url, json=asked, headers=headers, timeout=600, trust_env=False)
    assert answer.status_code == 200, answer.text
    return {"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]}


def run_round(recorded: Recorded, store: StoreConfig, **more: Any) -> RoundReport:
    settings: dict[str, Any] = {"groups_per_round": 1, "optimizer_steps": 1, "tensorboard": False, "device": "cpu"}
    rewards = {"given": {"stored": True}}
    config = TrainerConfig(**settings, rewards=rewards, keep_state_every=2, proxy_urls=[], router_url=None, **more)
    trainer = Trainer(config, store, model_path=recorded.model)
    report = trainer.run_round()
    trainer.close()
    assert report is not None
    return report


def test_the_trainer_finds_a_real_engines_logprobs_again_and_the_engine_serves_what_was_trained(
    recorded: Recorded, tmp_path: Path
) -> None:
    store = recorded.copy(tmp_path)
    with connect(store) as sql:
        stitches = sql.sql("SELECT stitch, level, version_max FROM calls ORDER BY ALL").fetchall()
    assert stitches == [(stitch, "tokens", 0) for stitch in ("bridged", "new_root") for _ in range(SESSIONS)]
    report = run_round(recorded, store, engine_urls=[recorded.engine.url])
    found = report.metrics
    assert (found["samples"], found["skipped"], found["corrected"]) == (2 * SESSIONS, {}, {"truncated_sampling": 1})
    assert 0 < found["fresh_logprob_diff_mean"] < BFLOAT16_MEAN
    assert found["fresh_logprob_diff_max"] < BFLOAT16_MAX
    assert 0.8 < found["off_policy_weight_mean"] < 1.1, "about the mass that top_p keeps"
    assert report.published.serving == [recorded.engine.url]

    asked = {"input_ids": list(range(500, 520)), "sampling_params": {"max_new_tokens": TOKENS, "ignore_eos": True}}
    answer = recorded.engine.post("/generate", asked | {"return_logprob": True})
    told = np.asarray([logprob for logprob, _, _ in answer["meta_info"]["output_token_logprobs"]])
    assert answer["meta_info"]["weight_version"] == "1"
    new, old = (
        plain_logprobs(folder, asked["input_ids"], answer["output_ids"]) for folder in (report.path, recorded.model)
    )
    assert np.abs(told - new).mean() < BFLOAT16_MEAN and np.abs(told - new).max() < BFLOAT16_MAX
    assert np.abs(new - old).max() > 0


def test_adapters_are_trained_on_real_calls_and_published_as_a_whole_model(recorded: Recorded, tmp_path: Path) -> None:
    store = recorded.copy(tmp_path)
    report = run_round(recorded, store, lora_rank=4, lora_targets=["q_proj", "v_proj"], engine_urls=[])
    assert report.metrics["samples"] == 2 * SESSIONS
    assert 0 < report.metrics["fresh_logprob_diff_mean"] < BFLOAT16_MEAN
    first, last = (load_file(folder / "model.safetensors") for folder in (recorded.model, report.path))
    assert last.keys() == first.keys()
    changed = {name for name, weight in last.items() if not torch.equal(weight.float(), first[name].float())}
    assert {name.split(".")[-2] for name in changed} == {"q_proj", "v_proj"}
    ((call, *_), *_) = load_calls(store, [session_of(store)]).values()
    logprobs = [plain_logprobs(folder, call.prompt_ids, call.output_ids) for folder in (recorded.model, report.path)]
    assert np.abs(logprobs[0] - call.output_logprobs).max() < BFLOAT16_MAX
    assert 0 < np.abs(logprobs[1] - logprobs[0]).max() < BFLOAT16_MAX, "one step of adapters is a small one"


def session_of(store: StoreConfig) -> str:
    with connect(store) as sql:
        (name,) = sql.sql("SELECT session_id FROM calls ORDER BY started_us LIMIT 1").fetchall()[0]
    return str(name)


def plain_logprobs(model: Path, prompt: Any, output: Any) -> Any:
    """Logprobs of the output by transformers alone, in float32; shape (N,)."""
    network: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    ids = torch.tensor([[*map(int, prompt), *map(int, output)]])
    with torch.no_grad():
        logprobs = torch.log_softmax(network(ids).logits[0, len(prompt) - 1 : -1], -1)
    return logprobs.gather(1, ids[0, len(prompt) :, None])[:, 0].numpy()
