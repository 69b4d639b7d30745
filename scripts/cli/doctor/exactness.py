"""How far an engine's logprobs are from the trainer's, on a fixed set of prompts, with the settings of the engine.

Both compute log p(token | prefix) of the same tokens: the engine while it draws them at temperature 1, the trainer by
its own forward pass over the same weights. They differ by rounding; quantised weights or caches, other kernels and
speculative decoding make them differ more, and rounds that compare with the engine's logprobs inherit that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt

from weir.proxy.engines.engine_settings import settings_of
from weir.scripts.cli.doctor.finding import Finding, found
from weir.trainer.settings.config import TrainerConfig

ABOUT = "exactness"
PROMPTS = (
    "Write a Triton kernel that adds two vectors of any length, with a mask for the last block.",
    "class Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, dim=-1)\n",
    "The kernel below is wrong for rows longer than 1024. Explain why, then correct it.",
    "error: operands could not be broadcast together with shapes (64, 32) (32, 64)",
    "def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, BLOCK_M: tl.constexpr):",
    "Q: What limits the speed of a layer norm on a GPU?\nA:",
    "Once upon a time, in a village between two rivers,",
    "1, 1, 2, 3, 5, 8, 13, 21,",
)
TOKENS = 64
ABOVE = (0.001, 0.01, 0.1, 1.0)  # nats
MOST_MEDIAN = 0.1  # nats; SmolLM2 has 0.00001 where both compute in float32, and 0.03 where both do in bfloat16
TIMEOUT_S = 600.0

Ids = npt.NDArray[np.int32]
Drawn = tuple[Ids, Ids, npt.NDArray[np.float32]]  # prompt (P,), answer (N,), and the engine's logprobs of it (N,)


def exactness_findings(url: str, folder: Path, precision: str, *, adapter_name: str | None = None) -> list[Finding]:
    """Compare an engine with the trainer's forward pass over the weights in `folder`.

    Draws TOKENS tokens after each of PROMPTS, by the LoRA adapter of that name, where there is one. An
    engine that cannot be compared is a finding of its own.
    """
    try:
        with httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False) as engine:
            settings = _settings(engine)
            drawn = _drawn(engine, folder, {} if adapter_name is None else {"lora_path": adapter_name})
    except (httpx.HTTPError, ValueError) as error:
        advice = "give the URL of an SGLang or embedded engine that serves the weights to compare with"
        return [found(ABOUT, "engine", "", f"{url}: {error}", advice, required=True)]
    differences = np.abs(np.concatenate([lp for _, _, lp in drawn]) - _scored(folder, drawn, precision))
    shown = ", ".join(f"{name} {value}" for name, value in settings.items()) or "none are reported"
    return [found(ABOUT, "settings of the engine", shown, required=False), *_of(differences, folder, precision)]


def _settings(engine: httpx.Client) -> dict[str, Any]:
    answer = engine.get("/server_info")
    if answer.status_code == 404:
        answer = engine.get("/get_server_info")
    return settings_of(answer.raise_for_status().json())


def _drawn(engine: httpx.Client, folder: Path, adapter: Mapping[str, str]) -> list[Drawn]:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return [_answer(engine, tokenizer.encode(prompt).ids, adapter) for prompt in PROMPTS]


def _answer(engine: httpx.Client, prompt: Sequence[int], adapter: Mapping[str, str]) -> Drawn:
    sampling = {"temperature": 1.0, "max_new_tokens": TOKENS, "ignore_eos": True}
    body = {"input_ids": list(prompt), "sampling_params": sampling, "return_logprob": True, **adapter}
    answer = engine.post("/generate", json=body)
    meta: Mapping[str, Any] = answer.raise_for_status().json()["meta_info"]
    given = meta.get("output_token_logprobs")
    if not given:
        raise ValueError("its /generate gives no output_token_logprobs")
    logprobs, ids = zip(*((one[0], one[1]) for one in given), strict=True)
    return np.array(prompt, np.int32), np.array(ids, np.int32), np.array(logprobs, np.float32)


def _scored(folder: Path, drawn: Sequence[Drawn], precision: str) -> npt.NDArray[np.float32]:
    """The trainer's logprobs of all answers, in nats, one after the other."""
    import torch

    from weir.trainer.credit.samples import Sample
    from weir.trainer.learner.distributed import Ranks
    from weir.trainer.learner.scoring import score_by

    samples = [
        Sample(
            call_id=f"{i:04d}",
            group_id="exactness",
            prompt_ids=prompt,
            output_ids=output,
            old_logprobs=logprobs,
            versions=np.zeros(len(output), np.int32),
            temperature=1.0,
            advantage=0.0,
        )
        for i, (prompt, output, logprobs) in enumerate(drawn)
    ]
    config = TrainerConfig.model_validate({"precision": precision})
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    scores = score_by(folder, samples, config, device, Ranks())
    return np.concatenate([scores[sample.call_id] for sample in samples])


def _of(differences: npt.NDArray[np.float32], folder: Path, precision: str) -> list[Finding]:
    """What is said of |engine - trainer|, shape (N,), in nats."""
    p50, p90, p99, most = np.quantile(differences, [0.5, 0.9, 0.99, 1.0])
    problem = None
    seen = f"p50 {p50:.2g}, p90 {p90:.2g}, p99 {p99:.2g}, max {most:.2g} nats over {len(differences)} tokens"
    if p50 > MOST_MEDIAN:
        problem = f"{seen}: more than rounding"
    shares = ", ".join(f"above {limit:g} nats {(differences > limit).mean():.1%}" for limit in ABOVE)
    advice = f"the engine has other weights than {folder}, or settings whose error rounds would inherit"
    return [
        found(ABOUT, f"logprobs, trainer in {precision}", seen, problem, advice, required=True),
        found(ABOUT, "share of tokens", shares, required=False),
    ]
