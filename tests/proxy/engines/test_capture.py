"""Engines' chunks become ids, logprobs and version spans, whichever form they have."""

import msgspec
import pytest

from weir.proxy.engines.capture import Capture, Chunk, MalformedChunk, decode_chunk
from weir.proxy.engines.client import chunks_of
from weir.proxy.errors import UpstreamLost
from weir.store.records.call_record import VersionSpan


def chunk(
    ids: list[int],
    completion_tokens: int | None,
    *,
    finish: str | None = None,
    version: str | None = "3",
    spans: list[tuple[str, int, int]] | None = None,
) -> Chunk:
    meta = {
        "completion_tokens": completion_tokens,
        "finish_reason": {"type": finish} if finish else None,
        "weight_version": version,
        "output_token_logprobs": [[-n / 4, n, None] for n in ids],
    }
    if spans is not None:
        meta["weight_versions"] = [{"version": v, "start": s, "end": e} for v, s, e in spans]
    return decode_chunk(msgspec.json.encode({"text": "ignored", "output_ids": ids, "meta_info": meta}))


def begun(*rids: str) -> Capture:
    capture = Capture()
    for rid in rids or ("r0",):
        capture.begin_piece(rid)
    return capture


def test_cumulative_and_incremental_streams_give_the_same_tokens() -> None:
    cumulative, incremental = begun(), begun()
    assert [cumulative.feed(c) for c in (chunk([7], 1), chunk([7, 8, 9], 3), chunk([7, 8, 9], 3, finish="stop"))] == [
        1,
        2,
        0,
    ]
    assert [incremental.feed(c) for c in (chunk([7], 1), chunk([8, 9], 3), chunk([], 3, finish="stop"))] == [1, 2, 0]
    for capture in (cumulative, incremental):
        assert capture.ids == [7, 8, 9]
        assert capture.logprobs == [-1.75, -2.0, -2.25]
        assert capture.spans == (VersionSpan(0, 3, "3"),)
        assert capture.finish is not None and capture.finish.type == "stop"


def test_one_json_body_is_one_chunk() -> None:
    capture = begun()
    capture.feed(chunk([1, 2], 2, finish="length", version="11"))
    assert (capture.ids, capture.spans, capture.last_version) == ([1, 2], (VersionSpan(0, 2, "11"),), "11")


def test_a_piece_after_an_abort_goes_on_where_the_first_ended() -> None:
    capture = begun()
    capture.feed(chunk([1, 2], 2, finish="abort", version="4"))
    capture.begin_piece("r1")
    assert capture.finish is None
    capture.feed(chunk([3], 1, version="5"))
    capture.feed(chunk([3, 4], 2, finish="stop", version="5"))
    assert capture.ids == [1, 2, 3, 4]
    assert capture.spans == (VersionSpan(0, 2, "4"), VersionSpan(2, 4, "5"))
    assert capture.rids == ["r0", "r1"]


def test_reported_spans_of_a_piece_are_offset_and_replace_what_its_chunks_said() -> None:
    capture = begun()
    capture.feed(chunk([1, 2], 2, finish="abort", version="4"))
    capture.begin_piece("r1")
    capture.feed(chunk([3], 1, version="4"))
    capture.feed(chunk([3, 4, 5], 3, finish="stop", version="6", spans=[("4", 0, 2), ("6", 2, 3)]))
    assert capture.spans == (VersionSpan(0, 4, "4"), VersionSpan(4, 5, "6"))


def test_a_version_that_changes_within_a_stream_without_reported_spans_is_taken_from_its_chunks() -> None:
    capture = begun()
    capture.feed(chunk([1, 2], 2, version="4"))
    capture.feed(chunk([1, 2, 3], 3, version="5"))
    assert capture.spans == (VersionSpan(0, 2, "4"), VersionSpan(2, 3, "5"))


def test_an_abort_before_the_first_token_may_lack_counts_and_logprobs() -> None:
    capture = begun()
    body = b'{"output_ids":[],"meta_info":{"id":"r0","finish_reason":{"type":"abort","message":"queue"}}}'
    assert capture.feed(decode_chunk(body)) == 0
    assert capture.ids == [] and capture.spans == ()
    assert capture.finish is not None and capture.finish.type == "abort"


def test_an_engine_that_names_no_version_is_recorded_as_unknown() -> None:
    capture = begun()
    capture.feed(chunk([1], 1, version=None))
    assert capture.spans == (VersionSpan(0, 1, "unknown"),)
    assert capture.spans[0].version is None


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk([1, 2], 2), chunk([1], 1)],  # fewer than before
        [chunk([1], 3)],  # counts more than it shows
        [chunk([1, 2], 2, finish="stop", spans=[("1", 0, 1)])],  # spans end early
        [chunk([1, 2], 2, finish="stop", spans=[("1", 0, 1), ("2", 0, 2)])],  # spans overlap
    ],
)
def test_a_chunk_that_contradicts_itself_is_refused(chunks: list[Chunk]) -> None:
    capture = begun()
    with pytest.raises(MalformedChunk):
        for each in chunks:
            capture.feed(each)


def test_ids_beside_the_logprobs_must_be_the_output_ids() -> None:
    body = b'{"output_ids":[5],"meta_info":{"completion_tokens":1,"output_token_logprobs":[[-1.0,6,null]]}}'
    with pytest.raises(MalformedChunk, match="are not the output ids"):
        begun().feed(decode_chunk(body))


def test_a_version_that_is_no_integer_becomes_the_assumed_one_and_others_stay() -> None:
    capture = Capture(assumed_version=4)
    capture.begin_piece("r0")
    capture.feed(chunk([1, 2], 2, version="default"))
    capture.feed(chunk([3], 3, version=None))
    capture.feed(chunk([5], 4, version="5", finish="abort"))
    assert capture.spans == (VersionSpan(0, 3, "assumed:4"), VersionSpan(3, 4, "5"))
    capture.begin_piece("r1")
    capture.feed(chunk([7, 8], 2, version="6", spans=[("default", 0, 1), ("6", 1, 2)]))
    assert capture.spans[2:] == (VersionSpan(4, 5, "assumed:4"), VersionSpan(5, 6, "6"))
    assert [span.version for span in capture.spans] == [4, 5, 4, 6]


def with_sampling(piece: Chunk, logprobs: list[float | None] | None) -> Chunk:
    meta = msgspec.structs.replace(piece.meta_info, output_token_sampling_logprobs=logprobs)
    return msgspec.structs.replace(piece, meta_info=meta)


def test_logprobs_after_truncation_are_kept_where_every_token_of_every_piece_has_one() -> None:
    whole, lost, null = begun(), begun(), begun()
    for capture in (whole, lost, null):
        capture.feed(with_sampling(chunk([7], 1), [-0.5]))
        capture.feed(with_sampling(chunk([7, 8], 2, finish="abort"), [-0.5, -0.25]))
        capture.begin_piece("r1")
    whole.feed(with_sampling(chunk([9], 1, finish="stop"), [-0.125]))
    lost.feed(chunk([9], 1, finish="stop"))
    null.feed(with_sampling(chunk([9], 1, finish="stop"), [None]))
    assert whole.sampling_logprobs == [-0.5, -0.25, -0.125]
    assert lost.sampling_logprobs is None and null.sampling_logprobs is None


def test_events_that_came_together_are_the_chunks_that_each_gives_alone_or_the_bad_one_is_named() -> None:
    one, two = (b'{"output_ids":[%d],"meta_info":{"completion_tokens":%d}}' % (n + 6, n) for n in (1, 2))
    chunks = chunks_of([b"data: " + one, b": waits", b"data:" + two, b"data: [DONE]", b""])
    assert chunks == [decode_chunk(one), decode_chunk(two)]
    assert [chunk.output_ids for chunk in chunks] == [[7], [8]]
    for bad in (one + b"," + two, one[:-1], b"", b"3"):
        with pytest.raises(UpstreamLost, match="cannot be read"):
            chunks_of([b"data: " + one, b"data: " + bad])
    with pytest.raises(UpstreamLost, match="ended the stream with an error"):
        chunks_of([b"data: " + one, b"event: stream_error\ndata: {}"])
