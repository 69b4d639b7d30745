"""Concurrent sessions of one task share their first messages, and must still be kept apart."""

import threading
from typing import Any

import pytest
from smolagents import CodeAgent, OpenAIModel
from support_model import make_tokenizer
from support_scripted_engine import Script


@pytest.mark.parametrize("named", [True, False], ids=["named", "inferred"])
def test_sessions_of_one_task_that_run_at_once_stay_apart(theatre: Any, named: bool) -> None:
    tokenizer = make_tokenizer(512)

    def script(body: dict[str, Any]) -> Script:
        later = "Observation:\nExecution logs:" in tokenizer.decode(body["input_ids"][-200:])
        line = "final_answer(number)" if later else f"number = {len(theatre.engine.requests)}\nprint(number)"
        ids = tokenizer.encode(f"<code>\n{line}\n</code>", add_special_tokens=False)
        return Script(ids=ids, matched="</code>", cut=None if later else "wait", cut_after=1)

    theatre.engine.requests.clear()
    theatre.engine.script = script
    answers: list[int] = []

    def run(path: str) -> None:
        model = OpenAIModel("weir", api_base=theatre.url(path), api_key="agent")
        answers.append(CodeAgent(tools=[], model=model, verbosity_level=0).run(f"Any number {named}."))

    paths = [f"/g/atonce/s/at-once-{n}/v1" if named else "/v1" for n in range(2)]
    threads = [threading.Thread(target=run, args=(path,)) for path in paths]
    for thread in threads:
        thread.start()
    theatre.engine.wait_waiting(2)
    theatre.engine.go_on()
    for thread in threads:
        thread.join(60)
    assert sorted(answers) == [1, 2]
    where = "group_id = 'atonce'" if named else "session_source = 'inferred'"
    rows = theatre.rows(f"SELECT session_id, depth, stitch FROM calls WHERE {where} ORDER BY session_id, depth")
    assert [row[1:] for row in rows] == [(0, "new_root"), (1, "bridged")] * 2
    assert len({row[0] for row in rows}) == 2 and rows[0][0] == rows[1][0]
