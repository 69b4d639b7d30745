"""`weir bench trainer`: tokens per second of a loss and backward pass, compared with TRL's GRPOTrainer.

Trees of sequences are also compared with the same sequences one by one.

Each side is a process with one thread; the sides alternate, step by step, on the same model and samples. Their losses
and gradient norms must agree, or the benchmark fails. Tokens are counted over the samples, prompts included, however
many a side computes. Peak memory is what the first step adds to a process that has loaded its model.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from weir.scripts.bench.figures import print_figures
from weir.scripts.bench.peer_environment import make_environment
from weir.scripts.bench.trainer.batches import flat_samples, tree_samples, write_model
from weir.scripts.launch.errors import CommandError
from weir.trainer.credit.samples import Sample

VERSION = "1.16.0"
ROUNDS = 5
TOLERANCE = 1e-4  # of losses and gradient norms, relative


def main(peer_env: Path) -> None:
    """Run the benchmark; prints a line for each figure, then one JSON object."""
    make_environment(peer_env, [f"trl=={VERSION}", "torch"], program="python")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder / "model")
        write_samples(folder / "samples.npz", flat_samples())
        figures = measure(folder, peer_env)
    print_figures(figures)


def measure(folder: Path, peer_env: Path) -> dict[str, float]:
    """Start both sides, check that they agree, and time alternating steps."""
    peer_argv = [str(peer_env / "bin" / "python"), str(Path(__file__).with_name("trl_side.py"))]
    our_argv = [sys.executable, "-m", "weir.scripts.bench.trainer.weir_side", str(folder / "model")]
    with (
        side([*peer_argv, str(folder / "model"), str(folder / "samples.npz")]) as trl,
        side(our_argv) as weir,
    ):
        first = {"trl": ask(trl, "flat"), "weir": ask(weir, "flat")}  # warm-up
        check_equal(first["trl"], first["weir"], "TRL's and Weir's")
        tree, unshared = ask(weir, "tree"), ask(weir, "unshared")
        check_equal(tree, unshared, "trees' and single sequences'")
        seconds: dict[str, list[float]] = {"trl": [], "flat": [], "tree": [], "unshared": []}
        for _ in range(ROUNDS):
            seconds["trl"].append(ask(trl, "flat")["seconds"])
            for what in ("flat", "unshared", "tree"):
                seconds[what].append(ask(weir, what)["seconds"])
    flat_tokens, tree_tokens = num_tokens(flat_samples()), num_tokens(tree_samples())
    ratio = unshared["computed_tokens"] / tree["computed_tokens"]
    return report(
        {
            "trl_tok_s": flat_tokens / statistics.median(seconds["trl"]),
            "flat_tok_s": flat_tokens / statistics.median(seconds["flat"]),
            "tree_tok_s": tree_tokens / statistics.median(seconds["tree"]),
            "flat_over_trl": _median_ratio(seconds["trl"], seconds["flat"]),
            "tree_over_flat": _median_ratio(seconds["unshared"], seconds["tree"]),
            "tree_ratio": ratio,
            "peak_memory_over_trl": first["weir"]["peak_bytes"] / first["trl"]["peak_bytes"],
        }
    )


def report(figures: dict[str, float]) -> dict[str, float]:
    """Print the figures for people; returns them rounded."""
    rounded = {name: round(value, 3) for name, value in figures.items()}
    print(f"flat batch: Weir {figures['flat_tok_s']:.0f} tokens/s · TRL {VERSION} {figures['trl_tok_s']:.0f}")
    print(f"peak memory of a step over TRL's: {rounded['peak_memory_over_trl']}")
    goal = 0.75 * figures["tree_ratio"]
    print(f"trees of ratio {rounded['tree_ratio']}: {rounded['tree_over_flat']} × as fast (goal {goal:.2f})")
    return rounded


def check_equal(left: dict[str, float], right: dict[str, float], whose: str) -> None:
    """Raise CommandError where the losses or gradient norms of two sides differ."""
    for name in ("loss", "grad_norm"):
        if abs(left[name] - right[name]) > TOLERANCE * max(abs(left[name]), abs(left["grad_norm"])):
            raise CommandError(f"{whose} {name} differ, {left[name]} and {right[name]}: there is nothing to compare")


def num_tokens(samples: Sequence[Sample]) -> int:
    """Prompt and output tokens of all samples."""
    return sum(len(sample.ids) for sample in samples)


def write_samples(file: Path, samples: Sequence[Sample]) -> None:
    """Write samples as plain arrays, for a process that imports nothing of ours."""
    arrays: dict[str, Any] = {"advantages": np.asarray([s.advantage for s in samples], dtype=np.float32)}
    for index, sample in enumerate(samples):
        arrays |= {f"prompt{index}": sample.prompt_ids, f"output{index}": sample.output_ids}
    np.savez(file, logprob=samples[0].old_logprobs[0], **arrays)


@contextmanager
def side(argv: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run one side of the benchmark as a process; it is terminated at the end of the block."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.terminate()
        process.wait()


def ask(process: subprocess.Popen[str], what: str) -> dict[str, float]:
    """Have a side compute one step; returns its figures. Raises CommandError where the process ended instead."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(what + "\n")
    process.stdin.flush()
    for line in process.stdout:
        if line.startswith("{"):
            found: dict[str, float] = json.loads(line)
            return found
    raise CommandError(f"{' '.join(map(str, process.args[:3]))} ended before its step; its output is above")  # type: ignore[index]


def _median_ratio(over: Sequence[float], under: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(over, under, strict=True))
