"""Whether answers depend on inputs."""

from __future__ import annotations

import torch

from weir.kernel_eval.judge.checks.answer_spread import AnswerSpread


def spread(*answers: tuple[str, list[float]]) -> list[int]:
    noted = AnswerSpread()
    for form, numbers in answers:
        noted.note(form, [torch.tensor(numbers), torch.tensor(1.0)])
    return noted.constant_outputs()


def test_an_output_that_no_draw_changes_is_named() -> None:
    assert spread(("a", [0.0]), ("a", [1.0]), ("a", [0.0])) == [1]
    assert spread(("a", [2.0]), ("a", [2.0]), ("b", [3.0])) == [0, 1]


def test_answers_that_pass_for_each_other_are_one() -> None:
    assert spread(("a", [1.0, 1.0]), ("a", [1.00001, 1.0]), ("a", [1.0, 0.99999])) == [0, 1]
    assert spread(("a", [1.0, 1.0]), ("a", [1.001, 1.0]), ("a", [1.0, 1.0])) == [1]


def test_too_few_draws_of_a_form_tell_nothing() -> None:
    assert spread(("a", [2.0]), ("a", [2.0])) == []
    assert spread(("a", [2.0]), ("b", [2.0]), ("c", [2.0])) == []
