"""Calls record the settings of the engines that could take them, and no call waits for engines that do not answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from support_way import Way

from weir.proxy.engines.engine_settings import EngineSettings

NARROW = {"dtype": "bfloat16", "kv_cache_dtype": "fp8_e4m3", "tp_size": 1}


def test_a_call_records_what_its_engine_says_of_itself(open_way: Callable[..., Way]) -> None:
    way = open_way()
    way.say("Hello.")
    way.proxy.client().chat.completions.create(model="weir", messages=[{"role": "user", "content": "Hi"}])
    (record,) = way.proxy.records()
    assert json.loads(record.engine_settings) == [
        {"dp_size": 1, "dtype": "bfloat16", "kv_cache_dtype": "auto", "tp_size": 1}
    ]


@pytest.mark.parametrize(
    ("infos", "expected"),
    [
        ([NARROW | {"weight_version": "1"}, NARROW | {"weight_version": "2"}], [NARROW]),
        ([{"dtype": "float32"}, NARROW, {"dtype": "float32"}], [NARROW, {"dtype": "float32"}]),
        ([{"quantization": None, "enable_dp_attention": False, "startup_time": 1.5}], None),
        ([{}], None),
        (None, None),
    ],
)
def test_engines_that_differ_are_told_apart_by_settings_alone(infos: Any, expected: Any) -> None:
    async def ask() -> Any:
        return infos

    async def run() -> str:
        settings = EngineSettings(ask)
        await settings.learn()
        await settings.close()
        return settings.json

    found = asyncio.run(run())
    assert (json.loads(found) if found else None) == expected


def test_calls_wait_for_one_question_and_for_no_later_one() -> None:
    async def run() -> None:
        may_answer = asyncio.Event()
        asked = 0

        async def ask() -> None:
            nonlocal asked
            asked += 1
            await may_answer.wait()

        settings = EngineSettings(ask)
        first = [asyncio.create_task(settings.learn()) for _ in range(3)]
        await asyncio.sleep(0)
        may_answer.set()
        await asyncio.gather(*first)
        assert (asked, settings.json) == (1, "")
        may_answer.clear()
        settings._learned._due_s = 0.0
        await settings.learn()  # returns, though nothing answers
        await asyncio.sleep(0)
        assert asked == 2
        await settings.close()

    asyncio.run(run())
