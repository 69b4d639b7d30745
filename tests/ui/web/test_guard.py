"""Who may see the page: nobody by a foreign name, nobody from elsewhere without a key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from weir.store.catalog.catalog import Catalog
from weir.store.catalog.keys import add_access_key, revoke_access_key
from weir.store.config import StoreConfig
from weir.ui.app import create_app
from weir.ui.config import UiConfig
from weir.ui.web import guard

KEY = "weir-ak-0123456789"


@pytest.fixture
def store(tmp_path: Path) -> StoreConfig:
    config = StoreConfig(root=tmp_path / "store")
    catalog = Catalog.open(config)
    add_access_key(catalog, "ann", KEY)
    catalog.close()
    return config


@pytest.fixture
def elsewhere(store: StoreConfig, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    monkeypatch.setattr(guard, "KEYS_AGE_S", 0.0)
    with TestClient(create_app(UiConfig(host="0.0.0.0"), store, None), base_url="http://machine:8800") as client:
        yield client


@pytest.mark.parametrize("host", ["127.0.0.1:8800", "localhost", "[::1]:8800"])
def test_this_machine_opens_it_without_a_key(store: StoreConfig, host: str) -> None:
    with TestClient(create_app(UiConfig(), store, None), base_url=f"http://{host}") as client:
        assert client.get("/").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1:8800"])
def test_a_foreign_name_for_this_machine_is_refused(store: StoreConfig, host: str) -> None:
    with TestClient(create_app(UiConfig(), store, None), base_url=f"http://{host}") as client:
        answer = client.get("/sessions.json")
        assert answer.status_code == 421 and "127.0.0.1" in answer.text


@pytest.mark.parametrize("host", ["", "[", "evil example", "127.0.0.1@evil.example", "evil.example:8800x"])
def test_what_is_no_host_is_refused(store: StoreConfig, host: str) -> None:
    with TestClient(create_app(UiConfig(), store, None), base_url="http://127.0.0.1:8800") as client:
        assert client.get("/sessions.json", headers={"host": host}).status_code == 421


def test_elsewhere_a_key_opens_it_as_password_or_bearer(elsewhere: TestClient) -> None:
    refused = elsewhere.get("/")
    assert refused.status_code == 401 and refused.headers["www-authenticate"].startswith("Basic")
    assert elsewhere.get("/", auth=("anyone", KEY)).status_code == 200
    assert elsewhere.get("/", headers={"authorization": f"Bearer {KEY}"}).status_code == 200


@pytest.mark.parametrize("shown", ["Basic !", "Basic aGVsbG8=", "Bearer", "Bearer wrong", "Digest x", ""])
def test_what_is_no_key_opens_nothing(elsewhere: TestClient, shown: str) -> None:
    for path in ("/", "/sessions.json", "/static/style.css", "/live", "/download/csv?q=FROM calls"):
        assert elsewhere.get(path, headers={"authorization": shown}).status_code == 401


def test_a_revoked_key_opens_nothing_any_more(elsewhere: TestClient, store: StoreConfig) -> None:
    assert elsewhere.get("/", auth=("ann", KEY)).status_code == 200
    catalog = Catalog.open(store)
    revoke_access_key(catalog, "ann")
    catalog.close()
    assert elsewhere.get("/", auth=("ann", KEY)).status_code == 401


def test_every_answer_forbids_inline_scripts_frames_and_guessing(store: StoreConfig) -> None:
    with TestClient(create_app(UiConfig(), store, None), base_url="http://127.0.0.1") as client:
        for path in ("/", "/nowhere", "/sql?q=SELEC", "/run.json", "/static/missing.js"):
            headers = client.get(path).headers
            assert "script-src 'self'" in headers["content-security-policy"]
            assert "unsafe" not in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
