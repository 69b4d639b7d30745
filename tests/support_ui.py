"""A small run in a store, as agents, judge and trainer leave it, and a page server over it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support_stores import Recording, make_call

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.leases import give_lease_back, take_lease
from weir.store.catalog.rows import EvaluationRow, RewardRow
from weir.store.config import StoreConfig
from weir.store.records.call_record import CallRecord

START_US = 1_780_000_000_000_000
KERNEL = """import triton
import triton.language as tl

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) {operator} tl.load(y + at, at < n), at < n)
"""


def answered(operator: str) -> str:
    """An answer with a kernel in it."""
    return f"Each program adds one block.\n\n```python\n{KERNEL.format(operator=operator)}```\n\nIt is bound by memory."


def session_calls(session_id: str, group_id: str, version: int, at_us: int, *, is_right: bool) -> list[CallRecord]:
    """Two turns of a session: a first kernel, the judge's message, and a second kernel."""
    question = {"role": "user", "content": "Write a Triton kernel that adds two vectors."}
    complaint = {"role": "user", "content": "The result is wrong at 3 of 4,096 places."}
    first = {"role": "assistant", "content": answered("-")}
    second = {"role": "assistant", "content": answered("+" if is_right else "*")}
    same: dict[str, Any] = {"session_id": session_id, "group_id": group_id, "user_agent": "OpenAI/Python 2.8.1"}
    prompt = [1, 2, 3, 4]
    again = [*prompt, 10, 11, 12, 20, 21]
    return [
        make_call(
            f"call_{session_id}_1",
            prompt,
            [10, 11, 12],
            at=at_us,
            versions=[(3, str(version))],
            request=json.dumps({"messages": [question]}).encode(),
            answer=json.dumps(first).encode(),
            **same,
        ),
        make_call(
            f"call_{session_id}_2",
            again,
            [30, 31, 32, 33],
            at=at_us + 20_000_000,
            versions=[(2, str(version)), (2, str(version + 1))],
            request=json.dumps({"messages": [question, first, complaint]}).encode(),
            answer=json.dumps(second).encode(),
            **same,
        ),
    ]


def record_run(config: StoreConfig, num_groups: int = 3, group_size: int = 4) -> None:
    """Groups of two-turn sessions with verdicts and rewards; a committed round for each group but the last."""
    recording = Recording(config, "proxy")
    catalog = recording.catalog
    for group in range(num_groups):
        group_id = f"group_{group}"
        for member in range(group_size):
            session_id, is_right = f"session_{group}_{member}", member <= group
            calls = session_calls(
                session_id, group_id, group, START_US + 600_000_000 * group + 1_000_000 * member, is_right=is_right
            )
            catalog.register_session(
                session_id,
                group_id,
                task={"task_id": f"add-{group % 2}"},
                group_size=group_size,
                metadata={},
                key_hash=None,
            )
            recording.record(*calls)
            for call, correct in zip(calls, (False, is_right), strict=True):
                catalog.add_evaluations([_verdict(call, correct)])
            reward = RewardRow(
                session_id=session_id,
                call_id=None,
                name="kernel",
                value=float(is_right),
                source="judge",
                idempotency_key="k",
            )
            catalog.add_rewards([reward])
            catalog.finish_session(session_id, status="done" if is_right else "failed", info={"turns": 2})
    _train(catalog, num_groups - 1, group_size)
    recording.close()


def _verdict(call: CallRecord, correct: bool) -> EvaluationRow:
    return EvaluationRow(
        call_id=call.call_id,
        session_id=call.session_id,
        group_id=call.group_id,
        round_id=None,
        content_hash=f"hash of {call.call_id}",
        compiled=True,
        correct=correct,
        fault=None if correct else "wrong_answer",
        raw_reward=float(correct),
        result={"message": "3 of 4,096 values differ" if not correct else "as the reference", "speedup": 1.5},
        created_us=call.finished_us,
    )


def _train(catalog: Catalog, num_rounds: int, group_size: int) -> None:
    for number in range(1, num_rounds + 1):
        group_id = f"group_{number - 1}"
        calls = {
            f"session_{number - 1}_{m}": [f"call_session_{number - 1}_{m}_{i}" for i in (1, 2)]
            for m in range(group_size)
        }
        lease = take_lease(catalog, "rounds", "test", 60.0)
        catalog.claim_groups(
            number, [group_id], {"round": number, "groups": [{"group_id": group_id, "calls": calls}]}, lease
        )
        metrics = {
            "reward_mean": number / 4,
            "loss": 1.0 / number,
            "entropy": 2.0 - number / 10,
            "seconds": {"judge": 3.0 * number, "train": 10.0, "publish": 0.5},
            "timeline": _steps(number),
        }
        catalog.commit_round(number, number, metrics, lease)
        catalog.add_version(
            number, path=f"versions/{number}", parent=number - 1, round_id=number, manifest_sha256=f"{number}"
        )
        catalog.set_published(number, START_US + number, ["http://127.0.0.1:31000"])
        give_lease_back(catalog, lease)


def _steps(number: int) -> list[list[Any]]:
    """The steps of a round of 20 s that begins a minute after the round before."""
    began = START_US / 1e6 + 60 * number
    return [
        ["claim", began, 1.0],
        ["judge", began + 1, 3.0 * number],
        ["train", began + 10, 8.0],
        ["checkpoint", began + 18, 1.0],
        ["publish", began + 19, 1.0],
        ["gates_close", began + 19.25, 0.25],
        ["engines_load", began + 19.5, 0.25],
    ]


@contextlib.contextmanager
def serving(config: StoreConfig, *others: StoreConfig, port: int = 0, **settings: Any) -> Iterator[str]:
    """A page server over a store, in a process of its own, with the curves of others; the block gets its address."""
    settings = {"nice": 0} | settings
    environment = os.environ | {f"WEIR_UI__{name.upper()}": str(value) for name, value in settings.items()}
    environment |= {"WEIR_STORE__ROOT": str(config.root)}
    if config.catalog_url:
        environment["WEIR_STORE__CATALOG_URL"] = config.catalog_url
    command = [str(Path(sys.executable).parent / "weir"), "ui", "--port", str(port)]
    command += [str(store.root) for store in (config, *others)] if others else []
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=config.folder) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield line.removeprefix("weir ui: ").strip()
        finally:
            process.send_signal(signal.SIGTERM)
