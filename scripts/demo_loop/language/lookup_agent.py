"""The agent of the demo with a language model: runs the directory's tool until the model answers; and its reward.

It uses the plain `openai` SDK and knows nothing of the proxy. Anything but a look-up or an answer ends the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weir.agents.config import AgentsConfig
from weir.agents.kernel_agent import ask, open_model
from weir.kernel_eval.client import KernelTask
from weir.scripts.demo_loop.language.directory import INSTRUCTIONS, answered, looked_up, right_answer, tool_result

if TYPE_CHECKING:
    from weir.trainer.rewards.answers import Answer


async def solve(task: KernelTask, base_url: str, api_key: str, config: AgentsConfig) -> dict[str, Any]:
    """Run one session; returns its info: `turns`, `answered`, whether there was an answer, and `correct`."""
    messages: list[Any] = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": task.prompt}]
    turns, answer = 0, None
    async with open_model(base_url, api_key, config) as model:
        while turns < config.turns:
            said = await ask(model, messages, config)
            turns += 1
            answer, person = answered(said), looked_up(said)
            if person is None:
                break
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": tool_result(person)}]
    return {"turns": turns, "answered": answer is not None, "correct": answer == right_answer(task.prompt)}


def reward(answer: Answer) -> float:
    """1 for the right answer to the question of its session, else 0: the reward function of the rounds."""
    asked = next(message["content"] for message in answer.messages if message["role"] == "user")
    return float(answered(answer.text) == right_answer(asked))
