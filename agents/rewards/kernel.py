"""Rewards from the kernel judge: the candidate is a file of the working folder."""

from __future__ import annotations

from contextlib import aclosing

from weir.agents.agent_task import AgentTask
from weir.agents.config import AgentsConfig
from weir.agents.errors import RewardFailed
from weir.agents.kernel_agent import open_judge
from weir.kernel_eval.client import KernelEvalRejected, KernelEvalUnavailable, KernelTask, KernelUnsupported

NOTHING = 0.0  # for a session that left no candidate


async def kernel_reward(name: str, task: AgentTask, candidate: str | None, config: AgentsConfig) -> float:
    """The judge's raw reward; 0 without a candidate. Raises `RewardFailed` where the judge gives no verdict."""
    if candidate is None:
        return NOTHING
    assert task.reference_src is not None
    kernel_task = KernelTask(task_id=task.task_id, prompt=task.prompt, reference_src=task.reference_src)
    try:
        async with aclosing(open_judge(config)) as judge:
            verdict = await judge.evaluate(kernel_task, candidate, use_cache=True)
    except (KernelEvalRejected, KernelEvalUnavailable, KernelUnsupported) as error:
        raise RewardFailed(f"the reward {name}: {error}") from error
    return verdict.raw_reward
