"""The page over a small run: every address, as a page and as JSON, and what is said where something is wrong."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient
from support_stores import Recording, make_call
from support_ui import record_run, serving, session_calls

from weir.store.config import StoreConfig
from weir.store.parquet.round_tokens import (
    CLIPPED_HIGH,
    CLIPPED_LOW,
    DROPPED,
    TRAINED,
    RoundCall,
    TokenTrace,
    round_tokens_file,
    write_round_tokens,
)
from weir.ui.app import create_app
from weir.ui.config import UiConfig
from weir.ui.web.routes import DOWNLOADS_AT_ONCE

LOCAL = "http://127.0.0.1:8800"
XSS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "</textarea><script>alert(1)</script>",
    "javascript:alert(1)",
    "{{ 7 * 191 }}",
    "'\"><a href=javascript:alert(1)>x</a>",
    "<!--<script>-->",
    "]]><script>alert(1)</script>",
    "\u202e<b>",
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> StoreConfig:
    config = StoreConfig(root=tmp_path_factory.mktemp("run") / "store")
    record_run(config)
    return config


@pytest.fixture(scope="module")
def page(store: StoreConfig) -> Iterator[TestClient]:
    with TestClient(create_app(UiConfig(), store, None), base_url=LOCAL) as client:
        yield client


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/",
            "/sessions",
            "/sessions/session_1_2",
            "/calls/call_session_1_2_2",
            "/compare",
            "/compare/task?task=add-0",
        ),
        *("/compare/sessions?a=session_1_0&b=session_1_2", "/sql", "/sql?q=FROM calls"),
    ],
)
def test_every_page_is_html_and_the_same_address_with_json_is_its_data(page: TestClient, path: str) -> None:
    html = page.get(path)
    assert html.status_code == 200 and html.headers["content-type"].startswith("text/html")
    address, _, question = path.partition("?")
    data = page.get(("/run" if address == "/" else address) + ".json" + (f"?{question}" if question else ""))
    assert data.status_code == 200 and data.headers["content-type"] == "application/json"


def test_the_run_shows_totals_rounds_and_what_each_version_earned(page: TestClient) -> None:
    run = page.get("/run.json").json()
    assert run["totals"] | {"last_call_at": None} == {
        "sessions": 12,
        "calls": 24,
        "output_tokens": 84,
        "running": 0,
        "rounds": 2,
        "version": 2,
        "last_call_at": None,
    }
    assert [(row["round_id"], row["phases"]["judge"]) for row in run["rounds"]] == [(2, 6.0), (1, 3.0)]
    assert run["faults"] == [{"fault": "wrong_answer", "num_sessions": 6}], "of the last judged call"
    assert [(row["version"], row["reward"]) for row in run["by_version"]] == [(1, 0.25), (2, 0.5), (3, 0.75)]


def test_curves_have_one_value_for_each_round(page: TestClient) -> None:
    (run,) = page.get("/curves.json").json()["runs"]
    assert run["round"] == [1, 2] and len(run["time"]) == 2
    assert run["series"]["reward_mean"] == [0.25, 0.5] and run["series"]["seconds.train"] == [10.0, 10.0]


def test_the_curves_of_other_stores_stand_beside_them_and_one_that_cannot_be_read_is_named(
    store: StoreConfig, tmp_path: Path
) -> None:
    other, torn = StoreConfig(root=tmp_path / "other"), StoreConfig(root=tmp_path / "torn")
    record_run(other, num_groups=4)
    torn.root.mkdir()
    (torn.root / "catalog.sqlite").write_bytes(b"no database, but long enough to be asked for its header" * 100)
    app = create_app(UiConfig(), store, None, others=[other, torn])
    with TestClient(app, base_url=LOCAL) as client:
        found = client.get("/curves.json").json()
    assert [run["name"] for run in found["runs"]] == [str(store.root), str(other.root)]
    assert found["runs"][1]["series"]["reward_mean"] == [0.25, 0.5, 0.75]
    assert list(found["unread"]) == [str(torn.root)] and "catalog" in found["unread"][str(torn.root)]


def test_a_session_shows_its_calls_with_code_difference_and_verdict(page: TestClient) -> None:
    found = page.get("/sessions/session_1_2.json").json()
    assert [call["call_id"] for call in found["calls"]] == ["call_session_1_2_1", "call_session_1_2_2"]
    answer = found["calls"][1]["messages"][-1]
    code = next(part for part in answer["parts"] if "code" in part)
    assert answer["is_answer"] and code["language"] == "python" and "tl.program_id(0)" in code["code"]
    changed = [line for line in code["diff"] if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert len(changed) == 2 and " - tl.load" in changed[0] and " * tl.load" in changed[1]
    assert found["calls"][1]["verdicts"][0]["fault"] == "wrong_answer"
    assert [message["parts"][0]["text"] for message in found["calls"][1]["messages"][:1]] == [
        "The result is wrong at 3 of 4,096 places."
    ], "a call shows what is new in it"


def test_the_tokens_of_a_call_are_those_of_its_record(page: TestClient) -> None:
    found = page.get("/calls/call_session_1_2_2/tokens.json").json()
    assert found["ids"] == [1, 2, 3, 4, 10, 11, 12, 20, 21, 30, 31, 32, 33] and found["output_start"] == 9
    assert found["logprobs"][9:] == [-0.5, -1.0, -1.5, -2.0] and set(found["logprobs"][:9]) == {None}
    assert found["versions"][9:] == [1, 1, 2, 2]
    assert found["trained"] == [0] * 9 + [1] * 4, "a committed round took this call"
    assert page.get("/calls/call_session_2_2_2/tokens.json").json()["trained"][-1] is None, "no round took this one"
    assert "model.path" in found["note"] and found["pieces"][:3] == ["1 ", "2 ", "3 "]


def test_the_tokens_of_a_call_have_what_the_round_kept_of_them(tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path / "store")
    record_run(config)
    one, other, left_out = (f"call_session_0_{member}_2" for member in (0, 1, 2))
    trace = TokenTrace(
        call_id=one,
        logprobs=np.log(np.array([0.5, 0.5, 0.25, 0.1], np.float32)),
        before=np.log(np.array([0.5, 0.25, 0.5, 0.1], np.float32)),
        entropies=np.array([0.1, 0.2, 0.3, 0.4], np.float32),
        advantages=np.array([1.0, 1.0, -1.0, -1.0], np.float32),
        parts=np.array([TRAINED, CLIPPED_HIGH, CLIPPED_LOW, DROPPED], np.uint8),
    )
    calls = [
        RoundCall(call_id=one, advantage=1.0, trace=trace),
        RoundCall(call_id=other, advantage=-0.5),
        RoundCall(call_id=left_out, left_out="truncated"),
    ]
    write_round_tokens(round_tokens_file(config.folder, 1), calls)
    with TestClient(create_app(UiConfig(), config, None), base_url=LOCAL) as client:
        found, plain, out, none = (
            client.get(f"/calls/{call_id}/tokens.json").json()
            for call_id in (one, other, left_out, "call_session_0_3_2")
        )
    start = found["output_start"]
    assert found["masks"][start - 1 :] == [
        *("prompt", "trained", "clipped, ratio too high", "clipped, ratio too low", "dropped by a correction")
    ]
    assert found["trained"][start:] == [1, 1, 1, 0] and found["advantages"][start:] == [1.0, 1.0, -1.0, -1.0]
    assert found["ratios"][start:] == pytest.approx([1.0, 2.0, 0.5, 1.0]) and found["ratios"][:start] == [None] * start
    assert found["trainer_logprobs"][start:] == pytest.approx([-0.6931, -0.6931, -1.3863, -2.3026], abs=1e-4)
    assert found["entropies"][start:] == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert plain["advantages"][start:] == [-0.5] * 4 and plain["ratios"][start:] == [None] * 4
    assert out["masks"][start:] == ["left out: truncated"] * 4 and out["trained"][start:] == [0] * 4
    assert none["masks"][start:] == ["trained"] * 4 and none["advantages"][start:] == [None] * 4, "not in the file"


def test_versions_are_compared_by_task(page: TestClient) -> None:
    found = page.get("/compare.json").json()
    assert (found["a"], found["b"], found["gained"], found["lost"]) == (1, 3, 1, 0)
    assert found["tasks"][0]["task_id"] == "add-0" and found["tasks"][0]["gain"] == 0.5


def test_a_task_is_shown_over_the_versions_that_played_it(page: TestClient) -> None:
    found = page.get("/compare/task.json", params={"task": "add-0"}).json()
    assert found["task"] == "add-0"
    assert [(row["version"], row["sessions"], row["reward"]) for row in found["versions"]] == [
        (1, 4, 0.25),
        (3, 4, 0.75),
    ]
    last = found["versions"][-1]
    assert (last["least"], last["most"], last["worst"]) == (0.0, 1.0, "session_2_3")
    nobody = page.get("/compare/task", params={"task": "it's"})
    assert nobody.status_code == 404 and "has played a task" in nobody.text


def test_two_sessions_stand_side_by_side_with_the_difference_of_their_code(page: TestClient) -> None:
    found = page.get("/compare/sessions.json?a=session_1_0&b=session_1_2").json()
    assert (found["a"]["session_id"], found["b"]["session_id"]) == ("session_1_0", "session_1_2")
    facts = {row["name"]: (row["a"], row["b"], row["differs"]) for row in found["facts"]}
    assert facts["reward"] == (1.0, 0.0, True) and facts["reward kernel"] == (1.0, 0.0, True)
    assert facts["task_id"] == ("add-1", "add-1", False)
    first, second = found["pairs"]
    assert first["diff"] == [], "both began with the same kernel"
    changed = [line for line in second["diff"] if line[0] in "+-" and line[:3] not in ("+++", "---")]
    assert len(changed) == 2 and " + tl.load" in changed[0] and " * tl.load" in changed[1]
    assert [message.get("same") for message in second["b"]["messages"]] == [True, False], "one complaint, two answers"
    assert "Two sessions" in page.get("/compare/sessions?a=session_1_0&b=session_1_2").text
    assert "They are of different tasks" in page.get("/compare/sessions?a=session_1_0&b=session_2_0").text


def test_an_answer_in_sql_is_shown_and_downloaded_in_three_formats(page: TestClient) -> None:
    query = "SELECT session_id, reward, [1, 2] AS list FROM sessions ORDER BY 1"
    shown = page.get("/sql.json", params={"q": query}).json()
    assert shown["columns"] == ["session_id", "reward", "list"] and len(shown["rows"]) == 12 and not shown["truncated"]
    lines = list(csv.reader(io.StringIO(page.get("/download/csv", params={"q": query}).text)))
    assert lines[0] == ["session_id", "reward", "list"] and lines[1] == ["session_0_0", "1.0", "[1,2]"]
    rows = [json.loads(line) for line in page.get("/download/jsonl", params={"q": query}).text.splitlines()]
    assert len(rows) == 12 and rows[0] == {"session_id": "session_0_0", "reward": 1.0, "list": [1, 2]}
    table = pq.read_table(io.BytesIO(page.get("/download/parquet", params={"q": query}).content))
    assert table.num_rows == 12 and table.column_names == ["session_id", "reward", "list"]


def test_a_long_answer_is_cut_on_the_screen_and_whole_in_the_file(page: TestClient) -> None:
    query = "SELECT range AS n FROM range(5000)"
    shown = page.get("/sql.json", params={"q": query}).json()
    assert len(shown["rows"]) == 1000 and shown["truncated"]
    assert len(page.get("/download/csv", params={"q": query}).text.splitlines()) == 5001


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/nowhere", 404, "no page at this address"),
        ("/sessions/unknown", 404, "there is no session"),
        ("/calls/unknown", 404, "there is no call"),
        ("/compare/sessions?a=session_1_0&b=unknown", 404, "there is no session"),
        ("/compare/sessions?a=session_1_0&b=session_1_0", 400, "two different sessions"),
        ("/calls/unknown/tokens.json", 404, "there is no call"),
        ("/sessions?sort=metadata", 400, "cannot sort by"),
        ("/sessions?after=nonsense", 400, "begin again without it"),
        ("/sessions?after=5", 400, "begin again without it"),
        ("/sessions?after=" + "[" * 5000, 400, "begin again without it"),
        ("/sessions?where=rewar", 400, "(columns: session_id, group_id, task_id, source, status, reward"),
        ("/sessions?where=" + quote("reward > 'much'"), 400, "columns: session_id"),
        ("/session", 400, "the parameter `id` is missing"),
        ("/sessions?where=" + quote("1) ORDER BY (1"), 400, "not a condition"),
        ("/compare?a=new", 400, "give an integer"),
        ("/?rounds=all", 400, "give an integer"),
        ("/sql?q=" + quote("DROP TABLE session_rows"), 400, "give one SELECT"),
        ("/sql?q=" + quote("SELECT * FROM read_csv('/etc/passwd')"), 400, "read_csv"),
        ("/download/xlsx?q=SELECT", 404, "csv, jsonl, parquet"),
        ("/download/csv?q=SELEC", 400, "SELEC"),
        ("/download/csv?q=SELECT+rewar+FROM+sessions", 400, "rewar"),
        ("/download/jsonl?q=SELECT+rewar+FROM+sessions", 400, "rewar"),
        ("/download/parquet?q=SELECT+rewar+FROM+sessions", 400, "rewar"),
        ("/download/csv?q=" + quote("SELECT error('no such task') FROM sessions"), 400, "no such task"),
    ],
)
def test_what_cannot_be_shown_says_why(page: TestClient, path: str, status: int, words: str) -> None:
    answer = page.get(path)
    assert answer.status_code == status and words in answer.text, answer.text


@pytest.mark.parametrize("text", XSS)
def test_what_a_model_or_an_agent_writes_never_becomes_markup(tmp_path: Path, text: str) -> None:
    config = StoreConfig(root=tmp_path / "store")
    recording = Recording(config, "proxy")
    body = {"messages": [{"role": text, "content": text}], "tools": [{"type": "function", "function": {"name": text}}]}
    calls = [{"function": {"name": text, "arguments": text}}]
    said = {
        "role": "assistant",
        "content": f"```{text}\n{text}\n```{text}",
        "reasoning_content": text,
        "tool_calls": calls,
    }
    call = make_call(
        text,
        [1],
        [2],
        session_id=text,
        group_id=text,
        user_agent=text,
        error=text,
        model=text,
        request=json.dumps(body).encode(),
        answer=json.dumps(said).encode(),
    )
    recording.record(call)
    recording.close()
    name = quote(text, safe="")
    with TestClient(create_app(UiConfig(), config, None), base_url=LOCAL) as client:
        pages = ["/", "/sessions", f"/sessions/{name}", f"/calls/{name}", "/compare", f"/sql?q={name}"]
        pages += [
            f"/sessions?where={name}",
            "/sql?q=" + quote("SELECT session_id, text FROM calls"),
            f"/nowhere/{name}",
        ]
        for path in pages:
            html = client.get(path).text
            assert "<script>alert" not in html and "<img" not in html and "<svg" not in html and "1337" not in html, (
                path
            )
            assert 'href="javascript' not in html.lower() and "<b>" not in html.replace("<b>judge", ""), path


def test_calls_that_are_recorded_later_appear_and_live_says_so(tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path / "store")
    record_run(config, num_groups=1, group_size=2)
    with serving(config, refresh_s=0.2) as address, httpx.Client(base_url=address, timeout=60) as client:
        assert client.get("/run.json").json()["totals"]["sessions"] == 2
        with client.stream("GET", "/live") as live:
            lines = live.iter_lines()
            assert next(lines) == "retry: 2000"
            recording = Recording(config, "later")
            recording.record(*session_calls("session_new", "group_new", 5, 1, is_right=True))
            told = next(line for line in lines if line.startswith("data: "))
        assert json.loads(told.removeprefix("data: "))["calls"] == 6
        assert client.get("/sessions/session_new").status_code == 200
        recording.close()


def test_readers_who_leave_do_not_keep_others_from_downloading(tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path / "store")
    record_run(config, num_groups=1, group_size=1)
    endless = {"q": "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE hash(a.range + b.range) = 1"}
    with serving(config) as address, httpx.Client(base_url=address, timeout=120) as client:
        for _ in range(2 * DOWNLOADS_AT_ONCE):
            with (
                pytest.raises(httpx.ReadTimeout),
                client.stream("GET", "/download/csv", params=endless, timeout=0.5) as told,
            ):
                told.read()
        assert client.get("/download/csv", params={"q": "SELECT 1 AS one"}).text == "one\n1\n"
        assert client.get("/health").json()["error"] is None


def test_slow_questions_keep_no_page_waiting(tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path / "store")
    record_run(config, num_groups=1, group_size=1)
    endless = "SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE hash(a.range + b.range) = 1"
    with serving(config, threads=1, refresh_s=1000) as address, httpx.Client(base_url=address, timeout=120) as client:
        for path in ("/sql", "/sessions"):
            given = {"q": endless, "where": f"({endless}) = 1"}
            with pytest.raises(httpx.ReadTimeout):
                client.get(path, params=given, timeout=1)
        assert client.get("/sessions/session_0_0").status_code == 200
        assert client.get("/health").json()["error"] is None


def test_a_store_that_vanishes_leaves_the_last_view_and_says_so(tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path / "store")
    record_run(config, num_groups=1, group_size=1)
    with serving(config, refresh_s=0.1) as address, httpx.Client(base_url=address, timeout=60) as client:
        assert client.get("/sessions").status_code == 200
        catalog = tmp_path / "store" / "catalog.sqlite"
        for file in catalog.parent.glob("catalog.sqlite*"):
            file.rename(file.with_suffix(".away"))
        catalog.mkdir()
        deadline = time.monotonic() + 120
        while "not renewed" not in (text := client.get("/sessions").text) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert "not renewed" in text and "session_0_0" in text


def first_event(client: httpx.Client, address: str, headers: dict[str, str]) -> str:
    """The first thing that /live says after its greeting."""
    with client.stream("GET", address, headers=headers) as live:
        lines = live.iter_lines()
        return next(line for line in lines if line.startswith((":", "event: ")))


def test_a_change_between_a_page_and_its_first_event_is_told_at_once(tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path / "store")
    record_run(config, num_groups=1, group_size=2)
    with serving(config, refresh_s=0.2) as address, httpx.Client(base_url=address, timeout=120) as client:
        found = re.search(r'data-seen="([0-9-]+)"', client.get("/").text)
        assert found
        recording = Recording(config, "later")
        recording.record(*session_calls("session_new", "group_new", 5, 1, is_right=True))
        recording.close()
        while client.get("/sessions/session_new").status_code == 404:
            pass
        assert first_event(client, f"/live?seen={found[1]}", {}) == "event: changed"
        assert first_event(client, "/live", {"last-event-id": found[1]}) == "event: changed"
        assert first_event(client, f"/live?seen={'9' * 5000}-1", {}) == "event: changed", "no page gave this"
        said = ""
        while said != ": still here":  # there is nothing else to tell, once the state of the servers has settled too
            newest = re.search(r'data-seen="([0-9-]+)"', client.get("/").text)
            assert newest and newest[1] != found[1]
            said = first_event(client, f"/live?seen={newest[1]}", {})


def test_code_and_verdicts_are_scrolled_by_the_keyboard_too(page: TestClient) -> None:
    for path in ("/sessions/session_1_2", "/calls/call_session_1_2_2"):
        blocks = re.findall(r"<pre[^>]*>", page.get(path).text)
        assert blocks and all('tabindex="0"' in block for block in blocks), path
