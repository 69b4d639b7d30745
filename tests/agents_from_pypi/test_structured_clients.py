"""instructor, DSPy and LlamaIndex: a plain call, a streamed one, calls of tools, structured output.

Their pins contradict Weir's, so they are not among the test dependencies: WEIR_TEST_MINI_SWE_AGENT names a virtual
environment that has them beside mini-swe-agent. Each runs in one process, since they take seconds to import.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ENVIRONMENT = os.environ.get("WEIR_TEST_MINI_SWE_AGENT", "")
SUM = {"total": 16, "words": "sixteen"}
FIELDS = json.dumps(SUM)
FORCED = FIELDS + "}\n</tool_call>"  # behind the beginning of a call that the client demands
ADDS = '<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 14}}\n</tool_call>'

BEGINNING = """
import asyncio, json, sys
from pydantic import BaseModel

class Sum(BaseModel):
    total: int
    words: str

def add(a: int, b: int) -> int:
    "Adds two integers."
    return a + b

def url(session):
    return f"{sys.argv[1]}/s/{session}/v1"

def show(**answers):
    print(json.dumps(answers))
"""

INSTRUCTOR = """
import instructor
from openai import OpenAI

def ask(session, mode=instructor.Mode.TOOLS, how="create", model=Sum):
    client = instructor.from_openai(OpenAI(base_url=url(session), api_key="agent"), mode=mode)
    asked = [{"role": "user", "content": "What is 2 + 14?"}]
    return getattr(client.chat.completions, how)(model="weir", response_model=model, messages=asked)

show(
    plain=ask("instructor-plain", model=None).choices[0].message.content,
    tool=ask("instructor-tool").model_dump(),
    streamed=list(ask("instructor-streamed", how="create_partial"))[-1].model_dump(),
    responses=ask("instructor-responses", instructor.Mode.RESPONSES_TOOLS).model_dump(),
    schema=ask("instructor-schema", instructor.Mode.JSON_SCHEMA).model_dump(),
)
"""

DSPY = """
import dspy

class Weir(dspy.LM):  # of a model that it does not know, DSPy assumes that it can do neither
    supports_function_calling = supports_response_schema = True
    supported_params = {"response_format"}

def lm(session, kind=dspy.LM):
    return kind("openai/weir", api_base=url(session), api_key="agent", cache=False)

class Calls(dspy.Signature):
    question: str = dspy.InputField()
    tools: list[dspy.Tool] = dspy.InputField()
    calls: dspy.ToolCalls = dspy.OutputField()

def plain():
    with dspy.context(lm=lm("dspy-plain")):
        return dspy.Predict("question -> answer")(question="What is 2 + 14?").answer

async def streamed():
    listener = dspy.streaming.StreamListener(signature_field_name="answer")
    with dspy.context(lm=lm("dspy-streamed")):
        program = dspy.streamify(dspy.Predict("question -> answer"), stream_listeners=[listener])
        parts = [part async for part in program(question="What is 2 + 14?")]
    return "".join(part.chunk for part in parts if isinstance(part, dspy.streaming.StreamResponse))

def tool():
    with dspy.context(lm=lm("dspy-tool", Weir), adapter=dspy.ChatAdapter(use_native_function_calling=True)):
        (call,) = dspy.Predict(Calls)(question="What is 2 + 14?", tools=[dspy.Tool(add)]).calls.tool_calls
        return add(**call.args)

def structured():
    with dspy.context(lm=lm("dspy-schema", Weir), adapter=dspy.JSONAdapter()):
        return dict(dspy.Predict("question -> total: int, words: str")(question="What is 2 + 14?"))

show(plain=plain(), streamed=asyncio.run(streamed()), tool=tool(), schema=structured())
"""

LLAMA_INDEX = """
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike

def llm(session, **settings):
    kind = {"is_chat_model": True, "is_function_calling_model": True}
    return OpenAILike(model="weir", api_base=url(session), api_key="agent", **kind, **settings)

async def agent():
    agent = FunctionAgent(tools=[add], llm=llm("llama-index-agent"), system_prompt="You add.")
    return str(await agent.run(user_msg="What is 2 + 14?"))

asked = [ChatMessage(role="user", content="What is 2 + 14?")]
structured = llm("llama-index-schema", should_use_structured_outputs=True).as_structured_llm(Sum)
show(
    plain=llm("llama-index-plain").chat(asked).message.content,
    streamed="".join(part.delta for part in llm("llama-index-streamed").stream_chat(asked)),
    agent=asyncio.run(agent()),
    tool=llm("llama-index-tool").as_structured_llm(Sum).chat(asked).raw.model_dump(),
    schema=structured.chat(asked).raw.model_dump(),
)
"""

pytestmark = pytest.mark.skipif(
    not ENVIRONMENT, reason="WEIR_TEST_MINI_SWE_AGENT names no environment with the clients"
)


def run_client(theatre: Any, folder: Path, client: str, script: str, played: dict[str, list[str]]) -> dict[str, Any]:
    """Run a script by itself in the clients' environment, and hold its sessions against the answers played for them.

    The last call alone is to be sampled under a grammar, that of `Sum`. Returns what the script shows.
    """
    todo = iter(theatre.play(*itertools.chain(*played.values())))
    done = subprocess.run(
        [Path(ENVIRONMENT).absolute() / "bin" / "python", "-c", BEGINNING + script, theatre.url("")],
        cwd=folder,
        env=os.environ | {"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with theatre.snapshot():
        for session, texts in played.items():
            theatre.hold_line(f"{client}-{session}", list(itertools.islice(todo, len(texts))))
    *others, last = (request["sampling_params"].get("json_schema") for request in theatre.engine.requests)
    assert not any(others) and list(json.loads(last)["properties"]) == ["total", "words"]
    shown: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return shown


def test_instructor(theatre: Any, tmp_path: Path) -> None:
    wrong = FORCED.replace("16", '"many"')
    played = {"plain": ["It is 16."], "tool": [wrong, FORCED], "streamed": [FORCED], "responses": [FORCED]}
    shown = run_client(theatre, tmp_path, "instructor", INSTRUCTOR, {**played, "schema": [FIELDS]})
    assert shown == {"plain": "It is 16.", "tool": SUM, "streamed": SUM, "responses": SUM, "schema": SUM}
    assert [body["stream"] for body in theatre.engine.requests] == [False, False, False, True, False, False]
    assert "Input should be a valid integer" in theatre.last_turn("instructor-tool")


def test_dspy(theatre: Any, tmp_path: Path) -> None:
    answer = "[[ ## answer ## ]]\nsixteen\n\n[[ ## completed ## ]]"
    played = {"plain": [answer], "streamed": [answer], "tool": [ADDS], "schema": [FIELDS]}
    shown = run_client(theatre, tmp_path, "dspy", DSPY, played)
    assert shown == {"plain": "sixteen", "streamed": "sixteen", "tool": 16, "schema": SUM}
    assert [body["stream"] for body in theatre.engine.requests] == [False, True, False, False]


def test_llama_index(theatre: Any, tmp_path: Path) -> None:
    played = {"plain": ["It is 16."], "streamed": ["It is 16."], "agent": [ADDS, "The sum is 16."], "tool": [FORCED]}
    shown = run_client(theatre, tmp_path, "llama-index", LLAMA_INDEX, {**played, "schema": [FIELDS]})
    said = {"plain": "It is 16.", "streamed": "It is 16.", "agent": "The sum is 16."}
    assert shown == {**said, "tool": SUM, "schema": SUM}
    assert [body["stream"] for body in theatre.engine.requests] == [False, True, True, True, False, False]
    assert "<tool_response>\n16\n</tool_response>" in theatre.last_turn("llama-index-agent")
