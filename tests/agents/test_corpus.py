"""The corpus: deterministic, without held-out tasks, and made of kernels whose faults are the ones that were put in."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import msgspec

from weir.agents.corpus import Example, draw_kernel, make_corpus, write_corpus
from weir.agents.family import Member, family_tasks, members
from weir.agents.templated import assemble, slots_of

TASKS = {task.task_id: task for task in family_tasks()}


def right_kernel(member: Member) -> str:
    return assemble(member, {name: variants[0].text for name, variants in slots_of(member).items()})


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tmp_path: Path) -> None:
    first = write_corpus(tmp_path / "a.jsonl", seed=1, num_examples=200).read_bytes()
    assert write_corpus(tmp_path / "b.jsonl", seed=1, num_examples=200).read_bytes() == first
    assert write_corpus(tmp_path / "c.jsonl", seed=2, num_examples=200).read_bytes() != first
    lines = first.splitlines()
    assert [msgspec.json.decode(line, type=Example) for line in lines] == make_corpus(1, 200)


def test_held_out_tasks_never_appear() -> None:
    heldout_prompts = {task.prompt for task in family_tasks("heldout")}
    for example in make_corpus(0, 3000):
        assert TASKS[example.task_id].split == "train"
        assert example.messages[0].content == TASKS[example.task_id].prompt
        assert example.messages[0].content not in heldout_prompts


def test_conversations_are_one_or_two_turns_and_a_second_turn_follows_a_fault() -> None:
    examples = make_corpus(0, 1000)
    roles = Counter(tuple(message.role for message in example.messages) for example in examples)
    assert set(roles) == {("user", "assistant"), ("user", "assistant", "user", "assistant")}
    assert 0.1 < roles[("user", "assistant", "user", "assistant")] / 1000 < 0.3
    by_id = {member.task_id: member for member in members()}
    for example in examples:
        if len(example.messages) == 4:
            assert example.messages[1].content != right_kernel(by_id[example.task_id])
            assert "\n" not in example.messages[2].content


def test_answers_are_bare_kernels_without_white_space_around_them() -> None:
    for example in make_corpus(0, 300):
        answer = example.messages[-1].content
        assert answer == answer.strip()
        assert answer.startswith("@triton.jit\ndef kernel")


def test_a_kernel_without_wrong_variants_is_the_right_one() -> None:
    draw = random.Random(0)
    for member in members():
        kernel, wrong = draw_kernel(member, draw)
        assert (kernel == right_kernel(member)) == (not wrong)
        assert draw_kernel(member, draw, faults=0.0) == (right_kernel(member), [])


def test_in_every_slot_the_weights_sum_to_one_and_only_the_first_variant_is_right() -> None:
    often_wrong = 0
    for member in members():
        for name, variants in slots_of(member).items():
            assert abs(sum(variant.weight for variant in variants) - 1.0) < 1e-9, name
            assert [variant.fault is None for variant in variants] == [True] + [False] * (len(variants) - 1)
            assert len({variant.text for variant in variants}) == len(variants)
            often_wrong += max(variants, key=lambda variant: variant.weight) is not variants[0]
    assert often_wrong > 40
