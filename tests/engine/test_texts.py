"""Incremental decoding, and trimming at stop strings."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from support_model import make_tokenizer

from weir.engine.texts import GrowingText, Texts, trim_stop, visible_ids


def test_growing_text_only_grows_and_ends_as_the_text_of_all_ids(tiny_model_dir: Path) -> None:
    texts = Texts(tiny_model_dir)

    @settings(max_examples=100, deadline=None)
    @given(st.text(max_size=12), st.lists(st.integers(1, 5), max_size=40))
    def check(text: str, steps: list[int]) -> None:
        ids = make_tokenizer(512).encode(text)
        growing, seen, place = GrowingText(texts, skip_special=True), "", 0
        for step in steps:
            place = min(len(ids), place + step)
            now = growing.read(ids[:place], final=False)
            assert now.startswith(seen)
            assert "\ufffd" not in now or "\ufffd" in text
            seen = now
        assert growing.read(ids, final=True) == texts.decode(ids, skip_special=True)

    check()


def test_half_a_character_is_held_back_until_the_end(tiny_model_dir: Path) -> None:
    ids = make_tokenizer(512).encode("aé")
    assert len(ids) == 3
    growing = GrowingText(Texts(tiny_model_dir), skip_special=True)
    assert growing.read(ids[:2], final=False) == "a"
    assert growing.read(ids, final=False) == "aé"
    assert GrowingText(Texts(tiny_model_dir), skip_special=True).read(ids[:2], final=True) == "a\ufffd"


def test_a_stop_is_cut_unless_wanted() -> None:
    assert trim_stop("one END two", {"type": "stop", "matched": "END"}, no_stop_trim=False) == "one "
    assert trim_stop("one END two", {"type": "stop", "matched": "END"}, no_stop_trim=True) == "one END"
    assert visible_ids([1, 2, 3], {"type": "stop", "matched": 3}, no_stop_trim=False) == [1, 2]
    assert visible_ids([1, 2, 3], {"type": "stop", "matched": 3}, no_stop_trim=True) == [1, 2, 3]
    assert visible_ids([1, 2, 3], None, no_stop_trim=False) == [1, 2, 3]
