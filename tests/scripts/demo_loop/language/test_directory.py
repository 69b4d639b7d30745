"""The questions of the demo with a language model, their right answers, and a warm-up that does not give these away."""

from __future__ import annotations

import pytest

from weir.scripts.demo_loop.language.directory import (
    DIRECTORY,
    PEOPLE,
    answered,
    looked_up,
    question_tasks,
    right_answer,
    tool_result,
)
from weir.scripts.demo_loop.language.warm_up import make_sessions


def test_the_right_answer_is_the_entry_of_the_person_or_of_their_boss() -> None:
    ann = DIRECTORY["Ann"]
    assert right_answer("What is the pet of Ann?") == ann.pet
    assert right_answer("What is the city of Ann's boss?") == DIRECTORY[ann.boss].city
    assert tool_result("Ann") == f"city {ann.city}, pet {ann.pet}, boss {ann.boss}"
    assert tool_result("Zaphod") == "not found"
    with pytest.raises(ValueError, match="no question"):
        right_answer("Who is Ann?")


def test_a_person_and_their_boss_never_have_the_same_answer() -> None:
    for entry in DIRECTORY.values():
        boss = DIRECTORY[entry.boss]
        assert boss.person != entry.person
        assert boss.city != entry.city
        assert boss.pet != entry.pet


def test_held_out_people_and_answers_appear_in_no_training_session() -> None:
    trained = " ".join(
        [task.prompt + " " + right_answer(task.prompt) for task in question_tasks("train")]
        + [message["content"] for session in make_sessions(0) for message in session]
    )
    words = {word.strip("?,'s ") for word in trained.split()} | set(trained.split())
    for task in question_tasks("heldout"):
        assert right_answer(task.prompt) not in words
    assert not set(PEOPLE["heldout"].split()) & words


def test_a_warm_up_answer_is_right_by_chance_only() -> None:
    sessions = make_sessions(3, 2000)
    said = [(session[1]["content"], answered(session[-1]["content"])) for session in sessions]
    right = sum(answer == right_answer(asked) for asked, answer in said) / len(said)
    assert 0.22 < right < 0.28  # the hop is right in one of two, the field too
    assert make_sessions(3, 20) == sessions[:20]


def test_only_the_exact_forms_are_look_ups_and_answers() -> None:
    assert looked_up(" Look Ann\n") == "Ann"
    assert answered("Answer cat") == "cat"
    assert [answered(said) for said in ("Answer", "Answer a cat", "answer cat", "Look Ann")] == [None] * 4
    assert looked_up("Look up Ann") is None
