"""Completions over real sockets: texts and token ids as prompts, and the exact ids of texts that continue."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support_model import make_tokenizer
from support_scripted_engine import Script, logprob_of
from support_way import Way, ids_of, text_of

from weir.proxy.dialects.completions import parse
from weir.proxy.errors import BadRequest
from weir.store.records.call_record import FinishReason, Stitch, unpack_ids

PROMPT = "def add(x, y):"


def plain(text: str) -> list[int]:
    """Token ids of a text, without an end."""
    return ids_of(text)[:-1]


def single_characters(text: str) -> list[int]:
    """Ids of the same text that the tokenizer itself would merge."""
    return [number for character in text for number in make_tokenizer(512).encode(character)]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("as_ids", [False, True])
def test_a_prompt_is_completed_and_recorded_token_for_token(way: Way, stream: bool, as_ids: bool) -> None:
    ids = ids_of("\n    return x + y")
    way.say(Script(ids=ids, matched=ids[-1]))
    asked: Any = {"model": "weir", "prompt": plain(PROMPT) if as_ids else PROMPT, "max_tokens": 50}
    client = way.proxy.client()
    if stream:
        chunks = list(client.completions.create(**asked, stream=True))
        text = "".join(chunk.choices[0].text for chunk in chunks)
        assert [chunk.choices[0].finish_reason for chunk in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    else:
        answer = client.completions.create(**asked)
        text = answer.choices[0].text
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (len(plain(PROMPT)), len(ids))
    assert text == "\n    return x + y"
    (record,) = way.proxy.records()
    assert unpack_ids(record.prompt_ids).tolist() == plain(PROMPT) == way.engine.requests[-1]["input_ids"]
    assert unpack_ids(record.output_ids).tolist() == ids
    assert (record.dialect, record.stitch, record.finish) == ("completions", Stitch.NEW_ROOT, FinishReason.STOP)
    assert json.loads(record.answer)["content"] == text


def test_without_max_tokens_sixteen_are_sampled_as_at_openai(way: Way) -> None:
    way.say(Script(ids=ids_of("word " * 40)))
    answer = way.proxy.post("/v1/completions", {"model": "weir", "prompt": PROMPT}).json()
    assert answer["usage"]["completion_tokens"] == 16
    assert answer["choices"][0]["finish_reason"] == "length"
    assert set(answer) == {"id", "object", "created", "model", "choices", "usage"}
    assert answer["object"] == "text_completion"
    assert set(answer["choices"][0]) == {"index", "text", "logprobs", "finish_reason"}


@pytest.mark.parametrize("stream", [False, True])
def test_lists_of_prompts_and_several_answers_are_numbered_prompt_by_prompt(way: Way, stream: bool) -> None:
    way.engine.script = lambda body: Script(
        ids=ids_of(f"{text_of(body['input_ids'])} {body['sampling_params']['sampling_seed']}")
    )
    asked: Any = {"model": "weir", "prompt": ["one", "two"], "n": 2, "seed": 3, "max_tokens": 50}
    client = way.proxy.client()
    texts = [""] * 4
    if stream:
        for chunk in client.completions.create(**asked, stream=True):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
    else:
        answer = client.completions.create(**asked)
        texts = [choice.text for choice in answer.choices]
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == len(plain("one")) + len(plain("two"))
    assert [text.split()[0] for text in texts] == ["one", "one", "two", "two"]
    assert len(set(texts)) == 4
    records = sorted(way.proxy.records(), key=lambda record: record.choice)
    assert [record.choice for record in records] == [0, 1, 2, 3]
    assert {record.request_id for record in records} == {records[0].call_id}


def test_logprobs_have_the_old_form(way: Way) -> None:
    ids = ids_of("Hello there.")
    way.say(Script(ids=ids))
    answer = way.proxy.post("/v1/completions", {"model": "weir", "prompt": PROMPT, "logprobs": 0}).json()
    told = answer["choices"][0]["logprobs"]
    texts = [text_of([number]) for number in ids[:-1]]
    assert told["tokens"] == texts
    assert told["token_logprobs"] == [logprob_of(number, i) for i, number in enumerate(ids[:-1])]
    assert told["text_offset"] == [len("".join(texts[:i])) for i in range(len(texts))]


def go_on(way: Way, prompt: str, **options: Any) -> str:
    """One completion of the session `s`."""
    answer = way.proxy.post(
        "/s/s/v1/completions", {"model": "weir", "prompt": prompt, "max_tokens": 50, **options}
    ).json()
    return str(answer["choices"][0]["text"])


def test_a_text_that_goes_on_keeps_the_exact_ids_of_what_it_goes_on_from(way: Way) -> None:
    prompt, exact = PROMPT, []
    for number in range(3):
        output = single_characters(f"\n    step {number}")
        way.say(Script(ids=output, finish="length"))
        text = go_on(way, prompt)
        record = way.proxy.records()[-1]
        assert unpack_ids(record.prompt_ids).tolist()[: len(exact)] == exact
        assert record.stitch is (Stitch.BRIDGED if number else Stitch.NEW_ROOT)
        exact = unpack_ids(record.prompt_ids).tolist() + output
        prompt += text + f"\n    # and {number}"
    assert text_of(unpack_ids(record.prompt_ids).tolist()) == prompt[: -len(text + "\n    # and 2")]


def test_a_text_that_goes_on_behind_an_end_says_where_it_differs(way: Way) -> None:
    way.say(Script(ids=[*single_characters(" one"), *ids_of("")]))
    text = go_on(way, PROMPT)
    go_on(way, PROMPT + text + " two")
    first, second = way.proxy.records()
    said = len(first.prompt_ids + first.output_ids) // 4 - 1
    assert (second.stitch, second.stitch_differs_at) == (Stitch.TEMPLATE_STRIP, said)
    kept = unpack_ids(first.prompt_ids + first.output_ids).tolist()[:said]
    assert unpack_ids(second.prompt_ids).tolist() == kept + plain(" two")


def test_a_text_that_goes_on_where_a_stop_string_cut_it_is_tokenised_again(way: Way) -> None:
    way.say(Script(ids=plain(" one STOP"), matched="STOP"))
    text = go_on(way, PROMPT, stop="STOP")
    assert text == " one "
    go_on(way, PROMPT + text + "two")
    first, second = way.proxy.records()
    assert (second.stitch, second.stitch_call) == (Stitch.RETOKENISED, first.call_id)
    assert unpack_ids(second.prompt_ids).tolist() == plain(PROMPT + " one two")


def test_another_session_does_not_go_on_from_the_same_text(way: Way) -> None:
    way.say(Script(ids=single_characters(" one"), finish="length"))
    text = go_on(way, PROMPT)
    way.proxy.post("/s/t/v1/completions", {"model": "weir", "prompt": PROMPT + text + " two"})
    assert way.proxy.records()[-1].stitch is Stitch.NEW_ROOT


def test_a_call_without_a_session_joins_the_one_that_it_goes_on_from(way: Way) -> None:
    way.say(Script(ids=single_characters(" one"), finish="length"))
    client = way.proxy.client()
    text = client.completions.create(model="weir", prompt=PROMPT).choices[0].text
    client.completions.create(model="weir", prompt=PROMPT + text + " two")
    first, second = way.proxy.records()
    assert (second.stitch, second.session_id) == (Stitch.BRIDGED, first.session_id)


def test_a_prompt_that_does_not_fit_is_refused_by_its_own_name(way: Way) -> None:
    text = "\n" * 40_000
    answer = way.proxy.post("/v1/completions", {"model": "weir", "prompt": text})
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert answer.json()["error"]["param"] == "prompt"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"prompt": None}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": [["a"]]}, "prompt[0]"),
    ({"prompt": [1, "a"]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": [1, True]}, "prompt"),
    ({"prompt": ["x"] * 257}, "prompt"),
    ({"prompt": ["x"] * 200, "n": 100}, "n"),
    ({"suffix": "end"}, "suffix"),
    ({"echo": True}, "echo"),
    ({"best_of": 3}, "best_of"),
    ({"logprobs": 21}, "logprobs"),
    ({"messages": []}, "messages"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
]


@pytest.mark.parametrize(("fields", "param"), REFUSED, ids=lambda value: json.dumps(value)[:40])
def test_what_cannot_be_honoured_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(json.dumps({"model": "weir", "prompt": "x"} | fields).encode())
    assert caught.value.param == param


def test_ids_that_the_model_does_not_have_are_refused(way: Way) -> None:
    answer = way.proxy.post("/v1/completions", {"model": "weir", "prompt": [5, 100_000]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "prompt")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
prompts = st.text(max_size=9) | st.lists(st.text(max_size=9) | st.integers(-1, 600) | json_values, max_size=4)


@settings(max_examples=300, deadline=None)
@given(
    st.fixed_dictionaries(
        {"model": st.just("weir") | json_values, "prompt": prompts | json_values},
        optional=dict.fromkeys(
            ("n", "max_tokens", "stop", "stream", "stream_options", "logprobs", "suffix", "echo", "seed", "metadata"),
            json_values,
        ),
    )
)
def test_any_json_object_is_parsed_or_refused_as_a_bad_request(fields: dict[str, Any]) -> None:
    try:
        request = parse(json.dumps(fields).encode())
    except BadRequest as error:
        assert error.message
    else:
        assert request.raw_prompts
        assert request.messages == []
