"""The example agent: ask for a kernel, read the judge's feedback, try again, up to a number of turns.

It is written against the plain `openai` SDK and knows nothing of the proxy: a base URL, a key and a task are all it is
given. It posts no rewards; whether an answer was right is found out again by the trainer.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from weir.agents.config import AgentsConfig
from weir.agents.errors import AgentsError
from weir.kernel_eval.client import EvalResult, KernelEvalClient, KernelTask, candidate_source, feedback, tls_context

INSTRUCTIONS = """\
{prompt}

This is the PyTorch reference:

```python
{reference}```

Write the same as a class ModelNew (a torch.nn.Module, same arguments) whose work is done by Triton kernels. Answer with
one complete Python file in a fenced block."""


async def solve(task: KernelTask, base_url: str, api_key: str, config: AgentsConfig) -> dict[str, Any]:
    """Run one session; returns its info: the turns taken, and `correct`, None where the last answer was not judged."""
    messages: list[Any] = [{"role": "user", "content": first_message(task)}]
    async with open_model(base_url, api_key, config) as model, aclosing(open_judge(config)) as judge:
        for turn in range(1, config.turns + 1):
            answer = await ask(model, messages, config)
            if turn == config.turns:
                break
            candidate = candidate_source(task, answer)
            result = await judge.evaluate(task, candidate, num_correct_trials=config.feedback_trials, use_cache=True)
            if result.correct:
                return {"turns": turn, "correct": True}
            messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": said(result, config)}]
    return {"turns": config.turns, "correct": None}


def first_message(task: KernelTask) -> str:
    """The task's prompt; with the reference and the form of the answer where no template supplies them."""
    if task.candidate_template is not None:
        return task.prompt
    return INSTRUCTIONS.format(prompt=task.prompt, reference=task.reference_src)


def said(result: EvalResult, config: AgentsConfig) -> str:
    """The judge's feedback, cut to what the configuration allows."""
    return "\n".join(feedback(result).splitlines()[: config.feedback_lines])


async def ask(client: AsyncOpenAI, messages: list[Any], config: AgentsConfig) -> str:
    """One call to the model."""
    completion = await client.chat.completions.create(
        model=config.model, messages=messages, temperature=config.temperature, max_tokens=config.max_tokens
    )
    return completion.choices[0].message.content or ""


def open_model(base_url: str, api_key: str, config: AgentsConfig) -> AsyncOpenAI:
    """The SDK's client; it repeats failed calls, so that a proxy may be restarted under the session."""
    return AsyncOpenAI(
        base_url=base_url,
        api_key=api_key,
        timeout=config.call_timeout_s,
        max_retries=config.call_retries,
        http_client=DefaultAsyncHttpxClient(verify=tls_context()),
    )


def open_judge(config: AgentsConfig) -> KernelEvalClient:
    """A client of the kernel-eval server, for feedback only."""
    if config.kernel_eval_url is None:
        raise AgentsError(
            "agents.kernel_eval_url is not set: the agent has nobody to ask for feedback; set it or --turns 1"
        )
    key = config.kernel_eval_key.get_secret_value() if config.kernel_eval_key else None
    return KernelEvalClient(config.kernel_eval_url, key)
