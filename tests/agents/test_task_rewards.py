"""Rewards of a command's sessions from real parts: the kernel judge, a language model that judges, a function, a model.

One `weir run --agent-command` over three tasks. The judging model is SmolLM2, served by the embedded engine behind a
proxy, and by SGLang where WEIR_TEST_SGLANG names its environment.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from sglang_server import needs_sglang, start_sglang
from support_reward_model import RewardModel, reward_model
from support_servers import find_free_port, start_engine, start_server
from support_stack import Stack, running_stack

from weir.store.reader import connect

KERNELS = Path(__file__).parents[1] / "kernel_eval"
RIGHT = (KERNELS / "example_relu_candidate.py").read_text()
CANDIDATES = {"right": RIGHT, "wrong": RIGHT.replace("tl.maximum", "tl.minimum")}  # and a session that leaves none
TEMPLATE = (
    "A pupil was asked: {prompt}\nThe pupil answered: {answer}\nHow good is this answer, from 0 to 10? "
    "Reply with the number only."
)
ANSWER = "The work is done, in a new file."
AGENT = """
import os, shutil, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from scripted_agent import ask
ask("Say something.")
kind = sys.argv[2].split()[-1]
if Path(kind + ".py").exists():
    shutil.copy(kind + ".py", "kernel.py")
Path("answer.txt").write_text(sys.argv[3])
"""
FUNCTION = "def letters(result):\n    return len(result.read('answer.txt')) / 100\n"


@contextmanager
def judging_model(kind: str, stack: Stack, folder: Path) -> Iterator[str]:
    """The base_url of a served model that judges."""
    if kind == "embedded":
        yield stack.proxy.url + "/v1"
        return
    server = start_sglang(stack.settings.model.path or "", folder=folder, arguments=("--served-model-name", "weir"))
    try:
        yield server.url + "/v1"
    finally:
        server.stop()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, smollm2_dir: Path) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("rewards")
    port = find_free_port()
    settings = {"port": port, "gpus": [], "concurrency": 1}
    command = [sys.executable, "-m", "weir.kernel_eval.server.main", json.dumps(settings)]
    judge = start_server(command, port=port, log_path=folder / "judge.log")
    engine = start_engine(smollm2_dir, folder=folder)
    more = f'[agents]\nkernel_eval_url = "{judge.url}"\n'
    try:
        with running_stack(folder, model=smollm2_dir, engine_urls=[engine.url], proxy_settings=more) as running:
            yield running
    finally:
        engine.stop()
        judge.stop()


@pytest.fixture(scope="module")
def length_model() -> Iterator[RewardModel]:
    with reward_model(lambda answer: len(answer) / 10) as model:
        yield model


def write_tasks(folder: Path, judge_url: str, model: RewardModel) -> None:
    rewards = {
        "kernel": {"kernel": "kernel.py"},
        "letters": {"function": "own_rewards:letters"},
        "length": {"url": model.url, "answer": "answer.txt"},
        "judge": {
            "judge_url": judge_url,
            "judge_model": "weir",
            "judge_template": TEMPLATE,
            "judge_key_variable": "KEY_OF_THE_JUDGE",
            "answer": "answer.txt",
            "low": 0,
            "high": 10,
        },
    }
    task = {"rewards": rewards, "reference_src": (KERNELS / "example_relu_task.py").read_text()}
    files = {f"{name}.py": source for name, source in CANDIDATES.items()}
    lines = [
        task | {"task_id": kind, "prompt": f"Write ReLU: {kind}", "files": files} for kind in ("right", "wrong", "none")
    ]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "agent").mkdir()  # unlike `folder`, readable by the sessions' users
    (folder / "agent" / "agent.py").write_text(AGENT)
    (folder / "own_rewards.py").write_text(FUNCTION)


def run_agent(stack: Stack, folder: Path) -> subprocess.CompletedProcess[str]:
    command = f"{sys.executable} {folder / 'agent' / 'agent.py'} {Path(__file__).parent} {{prompt}} '{ANSWER}'"
    return subprocess.run(
        [
            *(sys.executable, "-m", "weir.scripts.cli.main", "run", "--config", str(stack.folder / "weir.toml")),
            *("--tasks", "tasks.jsonl", "--samples", "1", "--agent-command", command),
        ],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("WEIR_")}
        | {"KEY_OF_THE_JUDGE": "a-key"},
        capture_output=True,
        text=True,
        timeout=300,
    )


def asked(judge_url: str, prompt: str) -> float:
    """What the judging model says when it is asked directly, mapped to 0..1."""
    question = TEMPLATE.replace("{prompt}", prompt).replace("{answer}", ANSWER)
    body = {"model": "weir", "messages": [{"role": "user", "content": question}], "temperature": 0}
    answer = httpx.post(
        f"{judge_url}/chat/completions",
        json={**body, "max_tokens": 1024},
        headers={"authorization": "Bearer a-key"},
        timeout=240,
        trust_env=False,
    )
    said = answer.json()["choices"][0]["message"]["content"]
    return min(1.0, max(0.0, float(re.findall(r"-?\d+(?:\.\d+)?", said)[-1]) / 10))


@pytest.mark.parametrize("kind", ["embedded", pytest.param("sglang", marks=needs_sglang)])
def test_every_source_rewards_what_a_commands_session_left(
    stack: Stack, length_model: RewardModel, tmp_path: Path, kind: str
) -> None:
    with judging_model(kind, stack, tmp_path) as judge_url:
        write_tasks(tmp_path, judge_url, length_model)
        ran = run_agent(stack, tmp_path)
        assert ran.returncode == 0 and ran.stdout.rstrip().endswith("failed: none"), ran.stdout + ran.stderr
        judged = {name: asked(judge_url, f"Write ReLU: {name}") for name in ("right", "wrong", "none")}
    with connect(stack.settings.store) as db:
        rows = db.execute(
            "SELECT task_id, name, value FROM sessions JOIN groups USING (group_id) JOIN rewards USING (session_id) "
            "WHERE sessions.metadata ->> '$.agent' LIKE ?",
            [f"%{tmp_path}%"],
        ).fetchall()
    found = {(task, name): value for task, name, value in rows}
    assert len(rows) == len(found) == 12
    assert {task: found[task, "kernel"] for task in judged} == {"right": 1.0, "wrong": 0.3, "none": 0.0}
    assert {task: found[task, "judge"] for task in judged} == pytest.approx(judged)
    assert {found[task, "length"] for task in judged} == {len(ANSWER) / 10}
    assert {found[task, "letters"] for task in judged} == {len(ANSWER) / 100}
