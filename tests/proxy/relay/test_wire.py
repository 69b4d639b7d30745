"""Flags spliced into a body, and fields cut out of an answer, leave the rest of the text as it was."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.proxy.relay.wire import Cut, read_fields, spliced, without

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
SPACES = st.text(" \n\t", max_size=2)


@st.composite
def json_objects(draw: st.DrawFn) -> str:
    """An object's text, with white space wherever JSON allows it."""
    members = draw(st.dictionaries(st.text() | st.sampled_from(["logprobs", "n"]), VALUES, max_size=5))
    parts = [
        f"{draw(SPACES)}{json.dumps(name)}{draw(SPACES)}:{draw(SPACES)}{json.dumps(value)}{draw(SPACES)}"
        for name, value in members.items()
    ]
    return f"{draw(SPACES)}{{{','.join(parts) or draw(SPACES)}}}{draw(SPACES)}"


def test_flags_come_last_and_everything_else_stays_as_it_was() -> None:
    body = b'{ "model":"m",\n "temperature": 1.00, "x": [1e3 , {"logprobs":null}]\n}\n'
    changed = spliced(body, read_fields(body), {"logprobs": b"true", "return_token_ids": b"true"})
    assert changed == body.replace(b"\n}\n", b'\n,"logprobs":true,"return_token_ids":true}\n')


def test_a_flag_that_asks_for_nothing_is_replaced_where_it_stands() -> None:
    body = '{"logprobs" : false, "note": "\\"logprobs\\": false, ü"}'.encode()
    assert spliced(body, read_fields(body), {"logprobs": b"true"}) == body.replace(b": false,", b": true,", 1)


def test_a_flag_that_the_agent_set_itself_stays() -> None:
    body = b'{"logprobs": true, "model": "m"}'
    assert spliced(body, read_fields(body), {"logprobs": b"true"}) is body
    completions = b'{"logprobs": 0, "model": "m"}'
    assert spliced(completions, read_fields(completions), {"logprobs": b"1"}) is completions


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'"x"', b"{}", b"\xff"])
def test_what_is_no_object_with_members_is_left_alone(body: bytes) -> None:
    assert spliced(body, read_fields(body), {"logprobs": b"true"}) == body


@given(json_objects())
def test_splicing_changes_only_the_flags_whatever_the_body(text: str) -> None:
    body = text.encode()
    fields = read_fields(body)
    changed = json.loads(spliced(body, fields, {"logprobs": b"true"}))
    before = json.loads(text)
    kept = before.get("logprobs")
    assert changed == (before | {"logprobs": True if kept is None or kept is False else kept} if before else {})


@given(json_objects(), st.data())
def test_cutting_takes_members_away_and_nothing_else(text: str, data: st.DataObject) -> None:
    body = text.encode()
    members = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    plain = [name for name in members if json.dumps(name) == f'"{name}"']
    names = data.draw(st.sets(st.sampled_from(plain))) if plain else set()
    nulled = data.draw(st.sets(st.sampled_from(sorted(names)))) if names else set()
    left = without(body, [Cut(name, members[name], name in nulled) for name in names])
    expected = {n: None if n in nulled else v for n, v in json.loads(text).items() if n not in names - nulled}
    assert json.loads(left) == expected
    if not names:
        assert left == body
