"""The proxy's own log and its metrics: the fields of each call, their format, and what they never contain."""

import io
import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from support_way import Way

from weir.proxy.logging_format import JsonLines, TextLines, log_fields

USER: Any = [{"role": "user", "content": "a secret of the user"}]
DOCS = Path(__file__).parents[2] / "docs/proxy.md"


@pytest.fixture
def lines() -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """The records of every logger below weir, as JSON lines."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    root = logging.getLogger("weir")
    root.addHandler(handler)
    before = root.level
    root.setLevel("INFO")
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.removeHandler(handler)
    root.setLevel(before)


def ask(way: Way, **options: Any) -> Any:
    return way.proxy.client(**options).chat.completions.create(model="weir", messages=USER)


def test_every_call_has_one_line_and_no_prompt_in_it(way: Way, lines: Callable[[], list[dict[str, Any]]]) -> None:
    way.say("A private answer.")
    ask(way)
    (record,) = way.proxy.records()
    (line,) = [line for line in lines() if line["logger"] == "weir.proxy.calls"]
    assert line["call"] == record.call_id
    assert line["session"] == record.session_id
    assert (line["dialect"], line["finish"], line["stitch"], line["version"]) == ("chat", "stop", "new_root", "0")
    assert (line["prompt_tokens"], line["output_tokens"]) == (
        len(record.prompt_ids) // 4,
        len(record.output_ids) // 4,
    )
    assert not any(text in json.dumps(lines()) for text in ("secret", "private"))


def test_prompts_are_logged_where_the_settings_ask_for_it(
    open_way: Callable[..., Way], lines: Callable[[], list[dict[str, Any]]]
) -> None:
    way = open_way(log_prompts=True)
    way.say("A private answer.")
    ask(way)
    (line,) = [line for line in lines() if line["logger"] == "weir.proxy.calls"]
    assert "a secret of the user" in line["request"]
    assert "A private answer." in line["answer"]


def test_a_failure_that_was_not_foreseen_has_an_id_in_the_answer_and_in_the_log(
    way: Way, lines: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(way.proxy.proxy.catalog, "find_session_by_key", fail)
    with pytest.raises(openai.InternalServerError) as failed:
        ask(way, api_key="weir-sk-1")
    found = re.search(r"error_[0-9a-f]{32}", failed.value.message)
    assert found
    (line,) = [line for line in lines() if found[0] in line["message"]]
    assert "a bug" in line["traceback"]


def test_a_line_of_the_log_is_one_line_whatever_is_in_it() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logger = logging.Logger("weir.test")
    logger.addHandler(handler)
    for form in (JsonLines(), TextLines()):
        handler.setFormatter(form)
        log_fields(logger, logging.INFO, "call", {"session": 'a\n"b" \x1b[0m', "seconds": 0.25, "error": None})
    as_json, as_text = stream.getvalue().splitlines()
    assert json.loads(as_json)["session"] == 'a\n"b" \x1b[0m'
    assert as_text.endswith(r'call session="a\n\"b\" \u001b[0m" seconds=0.250')


def test_the_documented_metrics_are_those_that_there_are(way: Way) -> None:
    documented = set(re.findall(r"`(weir_[a-z_]+)`", DOCS.read_text().partition("## Metrics")[2].partition("\n## ")[0]))
    exposed = re.findall(r"^# HELP (\S+) ", httpx.get(way.proxy.url + "/metrics", timeout=120).text, re.MULTILINE)
    assert documented == {name for name in exposed if not name.endswith("_created")}


def test_what_can_be_counted_is_there_as_zero_from_the_start(way: Way) -> None:
    metrics = httpx.get(way.proxy.url + "/metrics", timeout=120).text
    for sample in (
        "weir_records_lost_total 0.0",
        'weir_calls_total{dialect="chat",finish="stop"} 0.0',
        'weir_tokens_total{kind="cached"} 0.0',
        'weir_retries_total{how="joined"} 0.0',
        'weir_capture_level{level="tokens"} 1.0',
        "weir_waiting 0.0",
    ):
        assert f"\n{sample}\n" in metrics


def test_requests_are_counted_by_status_and_budgets_by_what_they_ended(way: Way) -> None:
    way.say("one two three four five six seven eight")
    session = way.proxy.control("POST", "/weir/sessions", {"budget": {"max_output_tokens": 3}}).json()
    ask(way, api_key=session["api_key"])
    with pytest.raises(openai.BadRequestError):
        ask(way, api_key=session["api_key"])
    metrics = httpx.get(way.proxy.url + "/metrics", timeout=120).text
    for sample in (
        'weir_requests_total{dialect="chat",status="200"} 1.0',
        'weir_requests_total{dialect="chat",status="400"} 1.0',
        'weir_budget_endings_total{by="output_tokens",how="cut"} 1.0',
        'weir_budget_endings_total{by="output_tokens",how="refused"} 1.0',
        'weir_calls_total{dialect="chat",finish="length"} 1.0',
        'weir_tokens_total{kind="output"} 3.0',
        "weir_call_seconds_count 1.0",
    ):
        assert f"\n{sample}\n" in metrics
