"""Logins: the right key alone opens one, and a login signs exactly what it was shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from weir.ui.control import login
from weir.ui.control.login import ControlKey, Logins
from weir.ui.errors import BadQuestion, Forbidden, Unavailable


def test_the_configured_key_comes_before_the_file_and_any_other_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "control.key"
    file.write_text("of the file\n")
    ControlKey(None, file).require("of the file")
    ControlKey("configured", file).require(" configured ")
    for key, given in ((None, "configured"), ("configured", "of the file"), (None, ""), (None, "of the fil\u00e9")):
        with pytest.raises(Forbidden, match=r"proxy\.control_key"):
            ControlKey(key, file).require(given)


def test_a_missing_or_empty_key_opens_nothing(tmp_path: Path) -> None:
    file = tmp_path / "control.key"
    with pytest.raises(Unavailable, match="the proxy makes it at its first start"):
        ControlKey(None, file).require("")
    file.write_text("\n")
    with pytest.raises(Unavailable, match="is empty"):
        ControlKey(None, file).require("")


def test_a_login_ends_by_its_cookie_and_by_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    logins = Logins(ControlKey("key", tmp_path))
    first, second = logins.open("key", " Ann  Lee "), logins.open("key", "")
    found = logins.find(first)
    assert found is not None and found.person == "Ann Lee"
    logins.close(first)
    logins.close(first)
    assert logins.find(first) is None and logins.find(second) is not None and logins.find("") is None
    monkeypatch.setattr(login, "LOGIN_S", -1.0)
    assert logins.find(logins.open("key", "")) is None


@pytest.mark.parametrize("person", ["x" * 101, "a\x00b", "\u202eb"])
def test_a_name_that_cannot_be_shown_is_refused(tmp_path: Path, person: str) -> None:
    with pytest.raises(BadQuestion, match="printable"):
        Logins(ControlKey("key", tmp_path)).open("key", person)


def test_a_signature_holds_for_one_login_one_path_and_these_values_only(tmp_path: Path) -> None:
    logins = Logins(ControlKey("key", tmp_path))
    ann, bob = (logins.find(logins.open("key", "")) for _ in range(2))
    assert ann is not None and bob is not None
    signature = ann.sign("/do/reward", {"name": "a", "value": "1"})
    ann.check("/do/reward", {"value": "1", "name": "a"}, signature)
    for who, path, values, given in (
        (bob, "/do/reward", {"name": "a", "value": "1"}, signature),
        (ann, "/do/pin", {"name": "a", "value": "1"}, signature),
        (ann, "/do/reward", {"name": "a", "value": "2"}, signature),
        (ann, "/do/reward", {"name": "a", "value": "1", "more": ""}, signature),
        (ann, "/do/reward", {"name": "a", "value": "1"}, ""),
        (ann, "/do/reward", {"name": "a", "value": "1"}, "\u00e9"),
    ):
        with pytest.raises(Forbidden, match="not one that the page showed"):
            who.check(path, values, given)
