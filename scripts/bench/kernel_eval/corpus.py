"""`weir bench kernel-eval --corpus tests`: the share of cheats that earn a reward, and of honest kernels that do not.

The corpus is this repository's own, a file a candidate: `cheats/*.py` for the tasks `kernel_eval/example_*_task.py`,
`cheats/reported/*.py` each with its task beside it, and `kernel_eval/honest/*.py`, each with its task within. Nothing
of it is imported here. With `--gpu` a server with this machine's GPUs judges: the cheats that need one are asked too,
and timed where their files say so. Without a GPU it also names the honest
kernels that a device would refuse for products of float32 in TF32.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from weir.scripts.bench.kernel_eval import server
from weir.scripts.launch.errors import NoDevice, UsageError

_TASK_NAMES = ("Model", "get_inputs", "get_init_inputs")
_AT_A_TIME = 2
ON_GPU = {"port": 0, "memory_bytes": 1 << 34, "call_timeout_s": 30.0}  # a worker's memory holds CUDA's context
_WRONG_ANSWER = 0.3  # the reward of an answer that is wrong, which no cheat is needed for
# its kernel computes the whole answer in every call, which is all that a reward is given for; torch, which overwrites
# it where nobody looks, has no part in what is judged
DOES_ITS_TASK = frozenset({"kernel_in_first_call_only"})


class Case(NamedTuple):
    """One candidate of the corpus."""

    name: str
    honest: bool
    task: str
    candidate: str
    perf_trials: int = 0


def stated(source: str) -> dict[str, Any]:
    """The literal constants of a cheat's file, read and not imported, since a cheat must not run here."""
    assigned = [node for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    named = {node.targets[0].id: node.value for node in assigned if isinstance(node.targets[0], ast.Name)}
    found = {}
    for name, value in named.items():
        with contextlib.suppress(ValueError):  # what the cheat itself computes
            if name.isupper():
                found[name] = ast.literal_eval(value)
    return found


def task_and_candidate(source: str) -> tuple[str, str]:
    """The two parts of an honest file. Sizes of the module that `get_inputs` reads belong to the task."""
    lines = source.splitlines(keepends=True)
    body = ast.parse(source).body
    given = [node for node in body if getattr(node, "name", None) == "get_inputs"]
    read = {node.id for part in given for node in ast.walk(part) if isinstance(node, ast.Name)}
    task: list[str] = ["import torch\n"]
    candidate: list[str] = []
    for node in body:
        is_size = isinstance(node, ast.Assign) and any(
            getattr(n, "id", None) in read for n in ast.walk(node.targets[0])
        )
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        text = "".join(lines[first - 1 : node.end_lineno]) + "\n"
        (task if is_size or getattr(node, "name", None) in _TASK_NAMES else candidate).append(text)
    return "".join(task), "".join(candidate)


def cases(folder: Path, *, on_gpu: bool = False) -> Iterator[Case]:
    """The corpus of a folder `tests` for judges with or without a GPU. Raises `UsageError` if it is none."""
    for path in _files(folder / "cheats"):
        source = path.read_text()
        constants = stated(source)
        if on_gpu or not constants.get("NEEDS_GPU"):
            task = folder / "kernel_eval" / f"example_{constants.get('TASK', 'relu')}_task.py"
            timed = constants.get("PERF_TRIALS", 0) if on_gpu else 0
            yield Case(path.stem, False, task.read_text(), source, timed)
    for path in _files(folder / "cheats" / "reported"):
        if not path.name.endswith(".task.py"):
            yield Case(
                path.stem, path.stem in DOES_ITS_TASK, path.with_suffix(".task.py").read_text(), path.read_text()
            )
    for path in _files(folder / "kernel_eval" / "honest"):
        yield Case(path.stem, True, *task_and_candidate(path.read_text()))


def _files(folder: Path) -> list[Path]:
    found = sorted(folder.glob("*.py"))
    if not found:
        raise UsageError(f"{folder} holds no candidates: give the folder `tests` of Weir's repository")
    return found


async def _judged(url: str, corpus: list[Case], trials: int) -> list[dict[str, Any] | None]:
    gate = asyncio.Semaphore(_AT_A_TIME)

    async def one(case: Case) -> dict[str, Any] | None:
        async with gate:
            return await server.evaluate(http, case.task, case.candidate, trials, perf_trials=case.perf_trials)

    async with server.client(url) as http:
        return await asyncio.gather(*(one(case) for case in corpus))


def is_wrong(case: Case, reply: dict[str, Any] | None) -> bool:
    """Whether an honest kernel was not found correct, or a cheat earns more than a wrong answer."""
    correct = reply is not None and bool(reply["correct"])
    if case.honest:
        return not correct
    return correct or (reply is not None and (reply["raw_reward"] or 0.0) > _WRONG_ANSWER)


def main(folder: Path, trials: int, *, on_gpu: bool = False) -> None:
    """Print what went wrong, and the two rates. Raises SystemExit with status 1 if either is not 0.

    Raises NoDevice where GPUs shall judge and the server has none.
    """
    corpus = list(cases(folder, on_gpu=on_gpu))
    with server.running_server(ON_GPU if on_gpu else {"port": 0, "gpus": []}) as (url, _):
        if on_gpu and (mode := httpx.get(f"{url}/health", trust_env=False).json()["mode"]) != "gpu":
            raise NoDevice(f"the server judges as {mode}: run this on a machine with a GPU and torch's CUDA build")
        replies = asyncio.run(_judged(url, corpus, trials))
    counts = {"cheats": 0, "cheats_rewarded": 0, "honest": 0, "honest_refused": 0, "honest_in_tf32": 0}
    for case, reply in zip(corpus, replies, strict=True):
        kind, wrong = ("honest", "honest_refused") if case.honest else ("cheats", "cheats_rewarded")
        counts[kind] += 1
        if is_wrong(case, reply):
            counts[wrong] += 1
            print(f"{wrong}: {case.name}: {reply and (reply['fault'], reply['fault_message'])}")
        if case.honest and reply is not None and reply["details"].get("tf32_dots"):
            counts["honest_in_tf32"] += 1
            print(f"honest_in_tf32: {case.name}: a device refuses it: give tl.dot input_precision='ieee'")
    rates = {
        "cheats_rewarded_rate": counts["cheats_rewarded"] / counts["cheats"],
        "honest_refused_rate": counts["honest_refused"] / counts["honest"],
    }
    print(json.dumps(counts | rates))
    if any(rates.values()):
        raise SystemExit(1)
