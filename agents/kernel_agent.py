"""The example agent: asks the model for a kernel and returns the judge's feedback to it, up to a number of turns.

It uses the plain `openai` SDK and gets a base URL, a key and a task; it knows nothing of the proxy. It posts no
rewards: the trainer judges the answers itself.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, omit

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
    """Run one session; returns its info: `turns`, and `correct`, None where the last answer was not judged."""
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
    """The task's prompt; for tasks without a template, with the reference and the form of the answer."""
    if task.candidate_template is not None:
        return task.prompt
    return INSTRUCTIONS.format(prompt=task.prompt, reference=task.reference_src)


def said(result: EvalResult, config: AgentsConfig) -> str:
    """The judge's feedback, at most `feedback_lines` lines."""
    return "\n".join(feedback(result).splitlines()[: config.feedback_lines])


async def ask(client: AsyncOpenAI, messages: list[Any], config: AgentsConfig) -> str:
    """The model's answer to messages."""
    completion = await client.chat.completions.create(
        model=config.model,
        messages=messages,
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        seed=omit if config.sampling_seed is None else config.sampling_seed,
    )
    return completion.choices[0].message.content or ""


def open_model(base_url: str, api_key: str, config: AgentsConfig) -> AsyncOpenAI:
    """The SDK's client, with retries, so that a proxy may restart during the session."""
    return AsyncOpenAI(
        base_url=base_url,
        api_key=api_key,
        timeout=config.call_timeout_s,
        max_retries=config.call_retries,
        http_client=DefaultAsyncHttpxClient(verify=tls_context()),
    )


def open_judge(config: AgentsConfig) -> KernelEvalClient:
    """A client of the kernel-evaluation server, for feedback. Raises `AgentsError` without its URL."""
    if config.kernel_eval_url is None:
        raise AgentsError("agents.kernel_eval_url is not set, and feedback needs it; set it, or use --turns 1")
    key = config.kernel_eval_key.get_secret_value() if config.kernel_eval_key else None
    return KernelEvalClient(config.kernel_eval_url, key)
