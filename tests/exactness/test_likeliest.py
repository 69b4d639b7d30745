"""A bias and the likeliest tokens through a real router and engine: the record has what the engine itself reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support_servers import start_engine
from support_stack import running_stack

from weir.proxy.pipeline.replay import likeliest_of
from weir.store.log.segment_format import read_segment
from weir.store.records.call_record import unpack_ids, unpack_logprobs


@pytest.mark.parametrize("stream", [False, True])
def test_a_biased_answer_and_its_likeliest_tokens_are_the_engines_own(
    tmp_path: Path, tiny_model_dir: Path, stream: bool
) -> None:
    engine = start_engine(tiny_model_dir, folder=tmp_path)
    try:
        with running_stack(tmp_path, model=tiny_model_dir, engine_urls=[engine.url]) as stack:
            body: dict[str, Any] = {"model": "weir", "messages": [{"role": "user", "content": "One?"}]}
            body |= {"max_tokens": 12, "temperature": 0, "logprobs": True, "top_logprobs": 4, "stream": stream}
            for bias in ({}, {"300": 100}):
                answer = stack.proxy.client.post("/v1/chat/completions", json=body | {"logit_bias": bias})
                assert answer.status_code == 200, answer.text
            segments = stack.settings.store.root.glob("log/*/*.wal")
            records = [record for path in segments for record in read_segment(path).records]
            plain, biased = sorted(records, key=lambda record: record.started_us)
            asked = {
                "input_ids": unpack_ids(biased.prompt_ids).tolist(),
                "sampling_params": {"temperature": 0, "max_new_tokens": 12, "logit_bias": {"300": 100}},
                "return_logprob": True,
                "top_logprobs_num": 4,
            }
            direct = engine.post("/generate", asked)
    finally:
        engine.stop()
    assert 300 not in unpack_ids(plain.output_ids).tolist()
    assert unpack_ids(biased.output_ids).tolist() == direct["output_ids"] == [300] * 12
    told = [[(n, logprob) for logprob, n, _ in row] for row in direct["meta_info"]["output_top_logprobs"]]
    for mine, theirs in zip(likeliest_of(biased), told, strict=True):
        assert [n for n, _ in mine] == [n for n, _ in theirs]
        assert [logprob for _, logprob in mine] == pytest.approx([logprob for _, logprob in theirs], abs=1e-5)
    for record in (plain, biased):
        drawn = zip(unpack_ids(record.output_ids).tolist(), unpack_logprobs(record.output_logprobs), strict=True)
        assert [row[0] for row in likeliest_of(record)] == list(drawn)
