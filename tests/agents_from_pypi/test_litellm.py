"""litellm as a library, by each interface that it translates to.

Its pins contradict Weir's, so it is not among the test dependencies: WEIR_TEST_MINI_SWE_AGENT names a virtual
environment that has it.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support_adder import ASKS

ENVIRONMENT = os.environ.get("WEIR_TEST_MINI_SWE_AGENT", "")
AGENT = """
import json, sys
import litellm

model, base_url, stream = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
# Otherwise litellm takes the whole response of a model that it does not know, and makes a stream of it by itself.
litellm.register_model({"weir": {"litellm_provider": "openai", "mode": "responses", "supports_native_streaming": True}})
parameters = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
tools = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": parameters}}]
messages = [{"role": "system", "content": "You add."}, {"role": "user", "content": "What is 2 + 3 + 10 + 1?"}]
while True:
    answer = litellm.completion(
        model=model, api_base=base_url, api_key="agent", messages=messages, tools=tools, max_tokens=500, stream=stream
    )
    if stream:
        answer = litellm.stream_chunk_builder(list(answer), messages=messages)
    message = answer.choices[0].message
    messages.append(message.model_dump())
    if not message.tool_calls:
        break
    for call in message.tool_calls:
        numbers = json.loads(call.function.arguments)
        messages.append({"role": "tool", "tool_call_id": call.id, "content": str(numbers["a"] + numbers["b"])})
print(json.dumps(message.content))
"""

pytestmark = pytest.mark.skipif(not ENVIRONMENT, reason="WEIR_TEST_MINI_SWE_AGENT names no environment with litellm")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("model", "path"),
    [("openai/weir", "/v1"), ("openai/responses/weir", "/v1"), ("anthropic/weir", "")],
    ids=["chat", "responses", "messages"],
)
def test_a_session_is_one_line_of_exact_turns(
    theatre: Any, tmp_path: Path, model: str, path: str, stream: bool
) -> None:
    answers = theatre.play(*ASKS)
    session = f"litellm-{model.replace('/', '-')}-{stream}"
    done = subprocess.run(
        [
            Path(ENVIRONMENT).absolute() / "bin" / "python",
            "-c",
            AGENT,
            model,
            theatre.url(f"/s/{session}{path}"),
            str(stream),
        ],
        cwd=tmp_path,
        env=os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == "The sum is 16."
    assert [body["stream"] for body in theatre.engine.requests] == [stream] * 3
    theatre.hold_line(session, answers)
    assert "<tool_response>\n16\n</tool_response>" in theatre.last_turn(session)
