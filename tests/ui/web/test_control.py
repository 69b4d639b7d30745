"""Acting on the page: with the control key, from a page of the server, after it was shown; all of it in the audit."""

from __future__ import annotations

import html
import io
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient
from support_stores import Recording
from support_ui import record_run, session_calls

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.pins import pin_groups, pins
from weir.store.catalog.proxies import seen_proxy
from weir.store.catalog.rewards import rewards_of
from weir.store.config import StoreConfig
from weir.ui.app import create_app
from weir.ui.config import UiConfig
from weir.ui.control import login
from weir.ui.web import control

LOCAL = "http://127.0.0.1:8800"
KEY = "weir-control-0123"
HERE = {"sec-fetch-site": "same-origin"}
REWARD = "/do/reward?session=session_2_1&call=&name=human&value=0.25&note=" + quote("a <b>good</b> try")


@pytest.fixture
def store(tmp_path: Path) -> StoreConfig:
    config = StoreConfig(root=tmp_path / "store")
    record_run(config)
    (config.root / "control.key").write_text(KEY + "\n")
    return config


@pytest.fixture
def page(store: StoreConfig) -> Iterator[TestClient]:
    with TestClient(create_app(UiConfig(), store, None), base_url=LOCAL, follow_redirects=False) as client:
        yield client


@pytest.fixture
def catalog(store: StoreConfig) -> Iterator[Catalog]:
    catalog = Catalog.open(store)
    yield catalog
    catalog.close()


def log_in(page: TestClient, person: str = "Ann") -> None:
    answer = page.post("/login", data={"key": KEY, "person": person, "next": "/"}, headers=HERE)
    assert answer.status_code == 303 and answer.headers["location"] == "/"


def fields(answer: httpx.Response) -> dict[str, str]:
    """The hidden fields of the form of a page."""
    assert answer.status_code == 200, answer.text
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)">', answer.text)
    return {name: html.unescape(value) for name, value in found}


def confirm(page: TestClient, shown: httpx.Response, **more: Any) -> httpx.Response:
    """Send the form of a page as a browser does."""
    return page.post(str(shown.url.path), data=fields(shown), headers=HERE, **more)


def human(catalog: Catalog) -> list[tuple[str, str | None, float, str]]:
    sessions = ["session_2_1", "session_new"]
    return [(r.session_id, r.call_id, r.value, r.source) for r in rewards_of(catalog, sessions, ["human", "kernel"])][
        1:
    ]


def test_without_a_login_an_action_leads_to_the_login_and_back(page: TestClient) -> None:
    asked = page.get(REWARD)
    assert asked.status_code == 303 and asked.headers["location"].startswith("/login?next=%2Fdo%2Freward%3Fsession")
    form = fields(page.get(asked.headers["location"]))
    answer = page.post("/login", data={**form, "key": KEY}, headers=HERE)
    assert answer.status_code == 303 and answer.headers["location"] == REWARD
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and KEY not in cookie
    assert page.get(REWARD).status_code == 200


def test_a_wrong_key_opens_nothing(page: TestClient, catalog: Catalog) -> None:
    answer = page.post("/login", data={"key": "wrong", "next": "/"}, headers=HERE)
    assert answer.status_code == 403 and "control.key" in answer.text and "set-cookie" not in answer.headers
    assert page.post("/do/reward", data={"action": "action_x"}, headers=HERE).status_code == 403
    assert not human(catalog) and page.get("/actions.json").json() == []


def test_a_reward_is_shown_first_stored_once_and_in_the_audit(page: TestClient, catalog: Catalog) -> None:
    log_in(page)
    shown = page.get(REWARD)
    text = html.unescape(shown.text)
    assert "session session_2_1 gets the reward human = 0.25." in text and "It has no reward of this name yet." in text
    assert "No round has taken its group group_2 yet." in text and "<b>good" not in shown.text
    assert not human(catalog), "nothing is done before"
    done = confirm(page, shown)
    assert done.status_code == 303
    again = page.post("/do/reward", data=fields(shown), headers=HERE)
    assert again.headers["location"] == done.headers["location"], "a form sent twice is one action"
    assert human(catalog) == [("session_2_1", None, 0.25, "page: Ann")]
    (row,) = page.get("/actions.json").json()
    assert row["kind"] == "reward" and row["outcome"] == "done" and row["note"] == "a <b>good</b> try"
    assert page.get(f"{done.headers['location']}.json").json() == {"action": row, "output": None, "file": None}
    assert (row["subject"], row["person"], row["given"]["value"]) == ("session_2_1", "Ann", "0.25")
    for path in (done.headers["location"], "/actions"):
        assert "<b>good" not in page.get(path).text and "reward" in page.get(path).text


def test_a_reward_says_what_counts_now_and_that_a_round_took_the_group(page: TestClient) -> None:
    log_in(page)
    text = page.get("/do/reward?session=session_0_0&name=kernel&value=2").text
    assert "It has kernel = 1 now, from judge" in text and "Round 1 has taken its group group_0" in text
    call = page.get("/do/reward?session=session_0_0&call=call_session_0_0_1&name=kernel&value=2").text
    assert "call call_session_0_0_1 of session session_0_0 gets" in call and "It has no reward" in call


def test_a_session_that_only_had_calls_is_registered_first(store: StoreConfig, catalog: Catalog) -> None:
    recording = Recording(store, "later")
    recording.record(*session_calls("session_new", "group_new", 5, 1, is_right=True))
    recording.close()
    with TestClient(create_app(UiConfig(), store, None), base_url=LOCAL, follow_redirects=False) as page:
        log_in(page, person="")
        shown = page.get("/do/reward?session=session_new&name=human&value=-1")
        assert "it is registered first" in shown.text
        confirm(page, shown)
    assert human(catalog) == [("session_new", None, -1.0, "page")]
    found = catalog.find_session("session_new")
    assert found is not None and found.group_id == "group_new"


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("reward?session=nobody&name=a&value=1", 404, "no session"),
        ("reward?session=session_0_0&call=call_session_0_1_1&name=a&value=1", 404, "has no call"),
        ("reward?session=session_0_0&name=&value=1", 400, "1 to 200 printable"),
        ("reward?session=session_0_0&name=a%00b&value=1", 400, "1 to 200 printable"),
        ("reward?session=session_0_0&name=a&value=much", 400, "give a number"),
        ("reward?session=session_0_0&name=a&value=inf", 400, "a finite number"),
        ("reward?session=session_0_0&name=a&value=1&note=" + "x" * 2001, 400, "2,001 characters"),
        ("pin?group=nothing", 404, "no group"),
        ("unpin?pin=nothing", 404, "no pin"),
        ("export?format=xlsx", 400, "choose one of trl, verl, slime, jsonl, parquet"),
        ("export?format=trl&policy=best", 400, "choose one of first, last, longest, every"),
        ("export?where=rewar", 400, "rewar"),
        ("export?where=1%29+OR+%281", 400, "not a condition"),
        ("export?where=reward+%3E+5", 400, "no trajectory to export"),
        ("publish?version=9", 404, "no weight version"),
        ("publish?version=1", 400, "has no folder on this machine"),
        ("rollback?version=2", 400, "version 2 is the newest"),
        ("delete?session=session_0_0", 404, "choose one of reward, pin, unpin, export, publish, rollback, round"),
    ],
)
def test_what_cannot_be_done_says_why_before_it_is_offered(
    page: TestClient, query: str, status: int, words: str
) -> None:
    log_in(page)
    answer = page.get(f"/do/{query}")
    assert answer.status_code == status and words in answer.text, answer.text


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"sec-fetch-site": "cross-site", "origin": LOCAL},
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "null"},
        {"origin": "http://["},
        {},
    ],
)
def test_a_form_of_another_site_is_refused(page: TestClient, catalog: Catalog, headers: dict[str, str]) -> None:
    log_in(page)
    form = fields(page.get(REWARD))
    for path, sent in (("/do/reward", form), ("/login", {"key": KEY}), ("/logout", {})):
        answer = page.post(path, data=sent, headers=headers)
        assert answer.status_code == 403 and "does not come from a page of this server" in answer.text
    assert not human(catalog) and page.get(REWARD).status_code == 200, "the login is still there"


def test_where_a_browser_names_only_the_origin_its_own_is_enough(page: TestClient, catalog: Catalog) -> None:
    log_in(page)
    assert page.post("/do/reward", data=fields(page.get(REWARD)), headers={"origin": LOCAL}).status_code == 303
    assert human(catalog)


def test_a_form_is_accepted_only_as_it_was_shown_to_this_login(page: TestClient, catalog: Catalog) -> None:
    log_in(page)
    form = fields(page.get(REWARD))
    forged = [form | {"value": "9"}, form | {"action": "action_other"}, form | {"more": ""}, {**form, "signature": ""}]
    forged.append({name: value for name, value in form.items() if name != "signature"})
    for sent in forged:
        assert page.post("/do/reward", data=sent, headers=HERE).status_code == 403
    assert page.post("/do/pin", data=form, headers=HERE).status_code == 403
    page.cookies.clear()
    log_in(page, person="Bob")
    assert page.post("/do/reward", data=form, headers=HERE).status_code == 403, "it was shown to another login"
    assert not human(catalog)


def test_a_logout_ends_the_login(page: TestClient) -> None:
    log_in(page)
    listed = page.get("/actions")
    assert "Logged in as Ann" in listed.text
    assert page.post("/logout", data={"signature": fields(listed)["signature"]}, headers=HERE).status_code == 303
    assert page.get(REWARD).status_code == 303 and "Log in" in page.get("/actions").text


def test_an_old_login_does_nothing(page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "LOGIN_S", 0.0)
    log_in(page)
    assert page.get(REWARD).status_code == 303


@pytest.mark.parametrize(
    "target", ["//evil.example", "http://evil.example", "/\\evil.example", "evil", "/a\r\nb: c", ""]
)
def test_a_login_leads_nowhere_else(page: TestClient, target: str) -> None:
    answer = page.post("/login", data={"key": KEY, "next": target}, headers=HERE)
    assert answer.headers["location"] == "/actions"


def test_what_is_no_form_is_refused(page: TestClient) -> None:
    for body in (b"\xff=1", b"a=%ff", b"&".join(b"a=1" for _ in range(41)), b"a=" + b"x" * 70_000):
        answer = page.post("/login", content=body, headers=HERE)
        assert answer.status_code == 400, body[:20]


def test_a_group_is_pinned_and_unpinned(page: TestClient, catalog: Catalog) -> None:
    log_in(page)
    shown = page.get("/do/pin?group=group_1")
    assert "The 4 sessions of group group_1, 8 calls, stay in the store" in shown.text
    confirm(page, shown)
    assert [(pin.name, pin.num_groups) for pin in pins(catalog)] == [("page: group_1", 1)]
    assert "is pinned already" in page.get("/do/pin?group=group_1").text
    listed = page.get("/actions").text
    assert "/do/unpin?pin=page%3A+group_1" in listed
    confirm(page, page.get("/do/unpin?pin=page%3A+group_1"))
    assert pins(catalog) == []
    assert [row["kind"] for row in page.get("/actions.json").json()] == ["unpin", "pin"]


def test_a_consumers_pin_is_named_as_such(page: TestClient, catalog: Catalog) -> None:
    pin_groups(catalog, "export to x", ["group_0", "group_1"], read_us=catalog.now_us())
    log_in(page)
    text = page.get("/do/unpin?pin=export+to+x").text
    assert "its 2 groups" in text and "may still need it" in text


def test_a_failure_is_in_the_audit(page: TestClient, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    log_in(page)
    shown = page.get("/do/pin?group=group_1")
    from weir.store.catalog import schema as t

    with catalog.writing().begin() as connection:  # retention takes the group in between
        connection.execute(t.retired_groups.insert().values(group_id="group_1", retired_us=2**62))
    answer = confirm(page, shown)
    assert answer.status_code == 503 and "retention removed it" in answer.text
    (row,) = page.get("/actions.json").json()
    assert row["outcome"] == "failed" and "retention removed it" in row["message"]


def test_a_get_changes_nothing(page: TestClient, catalog: Catalog) -> None:
    log_in(page)
    form = fields(page.get(REWARD))
    assert page.get("/do/reward", params=form).status_code == 200
    assert page.get("/logout").status_code == 405
    assert not human(catalog)


def ended(page: TestClient, address: str) -> dict[str, Any]:
    """The row of an action once it has ended."""
    while True:
        before = page.get(address).text
        row = next(row for row in page.get("/actions.json").json() if address.endswith(row["action_id"]))
        if row["outcome"] is not None:
            return dict(row)
        assert row["ended_us"] is None and "under way" in before, "what has not ended now was under way before"
        time.sleep(0.2)


@pytest.mark.parametrize(("form", "where"), [("trl", "reward > 0.5"), ("slime", ""), ("jsonl", "fault IS NOT NULL")])
def test_a_selection_becomes_a_file_that_only_a_login_takes(
    page: TestClient, store: StoreConfig, form: str, where: str
) -> None:
    log_in(page)
    query = urlencode({"format": form, "where": where})
    shown = page.get(f"/do/export?{query}")
    count = {"trl": 6, "slime": 12, "jsonl": 6}[form]
    assert f"{count} trajectories of 3 groups are written as {form}" in shown.text, shown.text
    address = confirm(page, shown).headers["location"]
    row = ended(page, address)
    assert row["outcome"] == "done" and f"wrote {count} trajectories" in row["message"], row
    answer = page.get(f"{address}/file")
    assert answer.status_code == 200 and f"{address}/file" in page.get(address).text
    if form == "trl":
        rewards = pq.read_table(io.BytesIO(answer.content))["reward"].to_pylist()
        assert rewards == [1.0] * 6
    if form == "jsonl":
        assert len(answer.text.splitlines()) == 1 + count
    page.cookies.clear()
    assert page.get(f"{address}/file").status_code == 403
    (store.folder / "exports" / Path(answer.headers["content-disposition"].split('"')[1])).unlink()
    log_in(page)
    assert page.get(f"{address}/file").status_code == 404


def test_a_round_shows_its_dry_run_first_and_says_what_it_did(tmp_path: Path) -> None:
    store = StoreConfig(root=tmp_path / "store")
    record_run(store, num_groups=1)
    (store.root / "control.key").write_text(KEY)
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    file = tmp_path / "weir.toml"
    file.write_text(f'[model]\npath = "{model}"\n[trainer]\nmin_groups = 100\nlr = 1e-5\ndevice = "cpu"\n')
    app = create_app(UiConfig(), store, None, config_path=file)
    with TestClient(app, base_url=LOCAL, follow_redirects=False) as page:
        log_in(page)
        shown = page.get("/do/round")
        assert "no round: too few finished groups" in shown.text, shown.text
        assert page.get("/actions.json").json() == [], "a dry run is no action"
        row = ended(page, confirm(page, shown).headers["location"])
    assert row["outcome"] == "done" and "no round: too few finished groups" in row["message"]


def test_a_dry_run_that_cannot_be_made_says_what_the_command_says(page: TestClient) -> None:
    log_in(page)
    answer = page.get("/do/round")
    assert answer.status_code == 409 and "set [model] path" in answer.text


def test_a_rollback_that_fails_says_so_in_the_audit(page: TestClient) -> None:
    log_in(page)
    shown = page.get("/do/rollback?version=1")
    assert "The weights of version 1 become version 3" in shown.text and "No proxy of this store is alive" in shown.text
    row = ended(page, confirm(page, shown).headers["location"])
    assert (
        row["outcome"] == "failed" and "version 1 has no folder" in row["message"] and "exit status" in row["message"]
    )


def test_a_version_with_a_folder_is_offered_to_the_engines(page: TestClient, catalog: Catalog, tmp_path: Path) -> None:
    folder = tmp_path / "v7"
    folder.mkdir()
    catalog.add_version(7, path=str(folder), parent=2, round_id=None, manifest_sha256="7")
    seen_proxy(catalog, "p", url="http://127.0.0.1:8000", writer="w")
    log_in(page)
    shown = page.get("/do/publish?version=7")
    assert f"Every engine loads the weights in {folder}." in shown.text
    assert "Version 2 was published last, to http://127.0.0.1:31000." in shown.text
    assert "Calls wait at http://127.0.0.1:8000" in shown.text
    row = ended(page, confirm(page, shown).headers["location"])
    assert row["outcome"] == "failed" and str(folder) in row["message"], "it is no version folder"


def test_a_form_whose_server_has_forgotten_it_is_refused(page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "KEPT_PLANS", 1)
    log_in(page)
    first = page.get(REWARD)
    page.get(REWARD)
    answer = confirm(page, first)
    assert answer.status_code == 409 and "too old" in answer.text
