"""TRL's side of `weir bench trainer`: `GRPOTrainer`'s own loss and backward pass.

It runs in TRL's environment and imports nothing of ours. Each line on stdin asks for one step, answered by one JSON
line. The samples have the form that TRL gives them after generation: prompts padded on the left and answers on the
right to the longest of the step, split into micro-batches of `per_device_train_batch_size`.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

MICRO_BATCH = 8  # TRL's default per_device_train_batch_size


def make_trainer(model_path: str, num_micro_batches: int) -> GRPOTrainer:
    arguments = GRPOConfig(
        output_dir="/tmp/none",
        use_cpu=True,
        bf16=False,
        report_to=[],
        per_device_train_batch_size=MICRO_BATCH,
        gradient_accumulation_steps=num_micro_batches,
        num_generations=MICRO_BATCH,
        gradient_checkpointing=False,
        loss_type="dapo",
        epsilon_high=0.28,
    )
    trainer = GRPOTrainer(
        model=model_path,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": ["x"] * 64}),
    )
    trainer.current_gradient_accumulation_steps = num_micro_batches
    trainer.model.train()
    return trainer


def pad(rows: list[np.ndarray], left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, rows))
    ids, mask = np.zeros((2, len(rows), longest), dtype=np.int64)
    for place, row in enumerate(rows):
        where = slice(longest - len(row), None) if left else slice(0, len(row))
        ids[place, where], mask[place, where] = row, 1
    return torch.from_numpy(ids), torch.from_numpy(mask)


def read_step(file: str) -> dict[str, torch.Tensor]:
    with np.load(file) as arrays:
        count = len(arrays["advantages"])
        prompts = [arrays[f"prompt{i}"] for i in range(count)]
        outputs = [arrays[f"output{i}"] for i in range(count)]
        advantages, logprob = torch.from_numpy(arrays["advantages"]), float(arrays["logprob"])
    prompt_ids, prompt_mask = pad(prompts, left=True)
    completion_ids, completion_mask = pad(outputs, left=False)
    return {
        "prompt_ids": prompt_ids,
        "prompt_mask": prompt_mask,
        "completion_ids": completion_ids,
        "completion_mask": completion_mask,
        "advantages": advantages,
        "old_per_token_logps": torch.full(completion_ids.shape, logprob),
    }


def step(trainer: GRPOTrainer, whole: dict[str, torch.Tensor]) -> dict[str, float]:
    trainer.model.zero_grad(set_to_none=True)
    items = whole["completion_mask"].sum()
    total = 0.0
    started = time.perf_counter()
    for start in range(0, len(whole["advantages"]), MICRO_BATCH):
        inputs = {name: values[start : start + MICRO_BATCH] for name, values in whole.items()}
        loss = trainer.compute_loss(trainer.model, inputs | {"num_items_in_batch": items})
        trainer.accelerator.backward(loss)
        total += float(loss.detach())
    seconds = time.perf_counter() - started
    norm = torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1e9)
    return {"seconds": seconds, "loss": total, "grad_norm": float(norm)}


def memory(field: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def main(model_path: str, data: str) -> None:
    torch.set_num_threads(1)
    whole = read_step(data)
    trainer = make_trainer(model_path, len(whole["advantages"]) // MICRO_BATCH)
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    for _ in sys.stdin:
        found = step(trainer, whole) | {"peak_bytes": memory("VmHWM") - before}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
