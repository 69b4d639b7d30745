"""A store with groups to train on, a scripted judge, and rounds in processes that can be killed.

The judge speaks the kernel-evaluation server's /eval and reads its verdict from the candidate: `reward=0.3` in the text
is the raw reward. In the mode `gpu` it also times on request: then `speedup=2` in a correct candidate is its speedup,
and the raw reward that of `kernel_eval/reward.py`. Logprobs are the tiny model's own, so that the trainer must find
them again.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from support_http import QuietHandler, listening
from support_processes import ended
from transformers import AutoModelForCausalLM

from weir.kernel_eval.client import KernelTask
from weir.kernel_eval.reward import Outcome, Stage, default
from weir.store.catalog.catalog import Catalog
from weir.store.config import StoreConfig
from weir.store.log.writer import LogWriter
from weir.store.records.call_record import (
    CallRecord,
    CaptureLevel,
    FinishReason,
    SessionSource,
    VersionSpan,
    pack_ids,
    pack_logprobs,
)
from weir.trainer.settings.config import TrainerConfig
from weir.trainer.trainer import Trainer

PROMPT_TOKENS = 6


class Judge:
    """What the scripted kernel-evaluation server was asked, and whether it is out of order."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.candidates: list[str] = []
        self.requests: list[dict[str, Any]] = []
        self.out_of_order = False
        self.mode = "interpreter"

    def reply(self, body: bytes) -> tuple[int, bytes]:
        """Status and body of an answer to /eval."""
        if self.out_of_order:
            return 503, b"down for maintenance"
        request = json.loads(body)
        source = request["custom_model_src"]
        self.candidates.append(source)
        self.requests.append(request)
        match = re.search(r"reward=([\d.]+)", source)
        reward = float(match[1]) if match else 0.0
        fault = None if reward == 1.0 else "output_mismatch" if reward >= 0.3 else "syntax_error"
        reply = {"compiled": reward >= 0.1, "correct": reward == 1.0, "fault": fault, "fault_message": "scripted"}
        rest = {"raw_reward": reward, "sandbox": "none", "mode": self.mode, "trials": 1, "seconds": 0.0}
        timed = self._timed(source) if request["measure_performance"] and reward == 1.0 else {"details": {}}
        return 200, json.dumps(reply | rest | timed).encode()

    def _timed(self, source: str) -> dict[str, Any]:
        if self.mode != "gpu":
            return {"details": {"timing": {"timing_kind": "interpreter"}}}
        match = re.search(r"speedup=([\d.]+)", source)
        speed = float(match[1]) if match else None
        flagged = None if match else "speedups of 20.0 and 30.0 do not agree"
        timing = {"timing_kind": "cuda_events", "speedup": speed, "flagged": flagged}
        outcome = Outcome(Stage.CORRECT, speed, timed=True)
        return {"raw_reward": default(outcome), "speedup": speed, "details": {"timing": timing}}


@contextmanager
def scripted_judge() -> Iterator[Judge]:
    """A judge on a free port."""

    class Handler(QuietHandler):
        def do_POST(self) -> None:
            self.answer(*judge.reply(self.rfile.read(int(self.headers["content-length"]))))

        def do_GET(self) -> None:
            self.answer(503 if judge.out_of_order else 200, json.dumps({"mode": judge.mode}).encode())

    with listening(Handler) as url:
        judge = Judge(url)
        yield judge


def make_task(name: str, split: str = "train") -> KernelTask:
    """A kernel task that only the scripted judge can judge."""
    return KernelTask(task_id=name, prompt="write it", reference_src=f"# {name}", split=split)  # type: ignore[arg-type]


def model_logprobs(model_dir: Path, prompts: np.ndarray, outputs: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """The model's logprobs of outputs (B, N) behind prompts (B, P); shape (B, N)."""
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    ids = torch.from_numpy(np.concatenate([prompts, outputs], axis=1).astype(np.int64))
    with torch.no_grad():
        logprobs = torch.log_softmax(model(ids).logits[:, prompts.shape[1] - 1 : -1] / temperature, -1)
    found: np.ndarray = logprobs.gather(2, ids[:, prompts.shape[1] :, None])[:, :, 0].numpy()
    return found


def make_record(
    call_id: str, session_id: str, group_id: str, prompt: Any, output: Any, logprobs: Any, **more: Any
) -> CallRecord:
    """A finished call whose answer is `text`; `version` names its weights."""
    text, version = more.pop("text", ""), more.pop("version", "0")
    given: dict[str, Any] = {
        "call_id": call_id,
        "session_id": session_id,
        "session_source": SessionSource.PATH,
        "group_id": group_id,
        "dialect": "chat",
        "level": CaptureLevel.TOKENS,
        "model": "tiny",
        "stream": False,
        "started_us": 1_000_000,
        "finished_us": 2_000_000,
        "prompt_ids": pack_ids(prompt),
        "output_ids": pack_ids(output),
        "output_logprobs": pack_logprobs(logprobs),
        "spans": (VersionSpan(0, len(output), version),),
        "finish": FinishReason.STOP,
        "request": json.dumps({"messages": [{"role": "user", "content": "write it"}]}).encode(),
        "answer": json.dumps({"role": "assistant", "content": text}).encode(),
        "sampling": {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_new_tokens": 64},
    }
    return CallRecord(**(given | more))


def add_group(
    store: StoreConfig,
    model_dir: Path,
    group_id: str,
    rewards: Sequence[float],
    *,
    num_tokens: int = 8,
    task: KernelTask | None = None,
    **more: Any,
) -> None:
    """Record one session of one call for each reward, with the model's own logprobs, and finish them.

    `notes` are added to the answers' texts.
    """
    seed = int.from_bytes(group_id.encode(), "little") % 2**32
    random = np.random.default_rng(seed)
    prompts = np.tile(random.integers(10, 200, PROMPT_TOKENS), (len(rewards), 1))
    outputs = random.integers(10, 200, (len(rewards), num_tokens))
    notes = more.pop("notes", [""] * len(rewards))
    logprobs = model_logprobs(model_dir, prompts, outputs, more.get("sampling", {}).get("temperature", 1.0))
    add_sessions(
        store,
        group_id,
        [
            [
                make_record(
                    f"call-{group_id}-{i}",
                    f"{group_id}-{i}",
                    group_id,
                    prompts[i],
                    outputs[i],
                    logprobs[i],
                    text=f"```\n{group_id} {i} reward={reward}{notes[i]}\n```",
                    **more,
                )
            ]
            for i, reward in enumerate(rewards)
        ],
        task=task,
    )


def add_sessions(
    store: StoreConfig, group_id: str, sessions: Sequence[Sequence[CallRecord]], *, task: KernelTask | None = None
) -> None:
    """Register a group's sessions, record their calls and finish them."""
    catalog = Catalog.open(store)
    log = LogWriter(store.folder, f"writer-{group_id}", store)
    for calls in sessions:
        session_id = calls[0].session_id
        catalog.register_session(
            session_id,
            group_id,
            task=msgspec.to_builtins(task or make_task(group_id)),
            group_size=len(sessions),
            metadata={},
            key_hash=None,
        )
        for future in [log.append(call) for call in calls]:
            future.result(120)
        catalog.finish_session(session_id, status="done", info={})
    log.close()
    catalog.close()


def trainer_config(judge: Judge, **more: Any) -> TrainerConfig:
    """Small rounds against a scripted judge; TensorBoard is off, as importing it costs a second."""
    given: dict[str, Any] = {
        "kernel_eval_url": judge.url,
        "groups_per_round": 2,
        "num_correct_trials": 1,
        "judge_attempts": 1,
        "tensorboard": False,
        "device": "cpu",
    }
    return TrainerConfig(**(given | more))


def run_in_process(
    config: TrainerConfig,
    store: StoreConfig,
    model_dir: Path,
    *,
    kill_at: str | int | None = None,
    rounds: int | None = 1,
    count_into: Path | None = None,
) -> int | None:
    """Run rounds in a process of its own, None: as long as there are groups; its exit code.

    It is killed with SIGKILL at the named step, or when its main thread has called so many functions, Python's and C's;
    `count_into` is a file for the number of calls that it made.
    """
    return ended(_rounds, config, store, model_dir, kill_at, rounds, count_into)


def _rounds(
    config: TrainerConfig,
    store: StoreConfig,
    model_dir: Path,
    kill_at: str | int | None,
    rounds: int | None,
    count_into: Path | None,
) -> None:
    def on_step(name: str) -> None:
        if name == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    calls = 0

    def on_call(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")
        if calls == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    if count_into is not None or isinstance(kill_at, int):
        sys.setprofile(on_call)
    trainer = Trainer(config, store, model_path=model_dir, on_step=on_step)
    done = 0
    while done != rounds and trainer.run_round(wait=True) is not None:
        done += 1
    assert rounds in (None, done)
    trainer.close()
    sys.setprofile(None)
    if count_into is not None:
        count_into.write_text(str(calls))
