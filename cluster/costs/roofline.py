"""Seconds of decode steps, prefill and updates, by roofline or as measured.

A decode step reads the weights and the KV cache of every running request once, and computes a forward pass for each
request: max(weights, requests x compute) + overhead + context. Training is bound by compute. So a member's
train_priority is the ratio of what it gives to training and to decoding: peak FLOP/s over bandwidth.
"""

from __future__ import annotations

from dataclasses import dataclass

from weir.cluster.description import Costs, Description, Device, Model


@dataclass(frozen=True, slots=True)
class StepCost:
    """What an engine's work costs, in seconds: of a step, by requests and tokens of context; of a token of prefill."""

    weights_s: float
    request_s: float
    context_s: float
    overhead_s: float
    prefill_s: float
    kv_tokens: float
    max_running: int


def step_cost(device: Device, model: Model, costs: Costs) -> StepCost:
    """The cost of generation on a device; measured values replace those of the roofline."""
    bandwidth = device.bandwidth * costs.decode_bandwidth
    weights_bytes = model.params * model.bytes_per_param
    free = device.memory_gb * 1e9 * costs.kv_memory - weights_bytes

    def measured(value: float | None, otherwise: float) -> float:
        return otherwise if value is None else value

    return StepCost(
        weights_s=measured(costs.step_weights_s, weights_bytes / bandwidth),
        request_s=measured(costs.step_request_s, model.flops_per_token / (device.flops * costs.decode_flops)),
        context_s=measured(costs.step_context_s, model.kv_bytes_per_token / bandwidth),
        overhead_s=costs.step_overhead_s,
        prefill_s=measured(costs.prefill_token_s, model.flops_per_token / (device.flops * costs.prefill_flops)),
        kv_tokens=measured(costs.kv_tokens, free / model.kv_bytes_per_token if model.kv_bytes_per_token else 1e18),
        max_running=costs.max_running,
    )


def update_s(description: Description, kinds: list[str], tokens: float) -> float:
    """Seconds of an update over so many tokens on members of these kinds, each taking tokens by its FLOP/s."""
    costs = description.costs
    if costs.update_s is not None:
        return costs.update_s
    flops = sum(description.devices[kind].flops for kind in kinds) * costs.train_flops
    return tokens * costs.train_passes * description.model.flops_per_token / flops + costs.update_overhead_s


def train_priority(device: Device) -> float:
    """What a device gives to training over what it gives to decoding: FLOP/s over bytes a second."""
    return device.flops / device.bandwidth
