"""The task of the demo with a language model: questions about people, answered by looking them up in a directory.

A question is about a person or about that person's boss, whose entry has to be looked up too. Invariants: entries are
the same in every process; people, cities and pets of the split "heldout" appear in no entry and no question of the
split "train"; a person and their boss differ in every field, so that an answer about the wrong one is wrong.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from weir.kernel_eval.client import KernelTask

Split = Literal["train", "heldout"]
FIELDS = ("city", "pet")

# Each name and value is one piece of SmolLM2's vocabulary, so that sessions are short.
PEOPLE: dict[Split, str] = {
    "train": "Ann Bob Eve Tom Kim Sam Max Dan Amy Joe Lee Ray Roy Tim Jim Ben Ian Leo Kate Mary John Paul Anna Mark "
    "Luke Emma Jack Rose Adam Alex Mike Nick Sara Lisa Carl Eric Ruth Jane Fred Hugo Peter Simon Oliver Harry "
    "George Henry Charles Arthur Alfred Alice Grace Sarah Laura Julia Maria Helen Diana Linda Nancy Susan "
    "Karen Betty Carol Sandra Emily Lucy Ella Sophia Olivia Noah Ethan Mason Logan Lucas Oscar Felix Victor "
    "Martin Robert David",
    "heldout": "Daniel Thomas James William Edward Frank Walter Albert Philip Stephen Andrew Kevin Brian Jason Steven "
    "Scott Ryan Jacob Aaron Nathan Tyler Sean Craig Keith Bruce Ralph Gary Dennis Jerry Larry Terry Billy",
}
VALUES: dict[Split, tuple[str, str]] = {
    "train": (
        "Rome Oslo Paris Berlin London Madrid Lima Cairo Tokyo Delhi Dublin Vienna Prague Boston Miami Denver Athens "
        "Milan Moscow Sydney Chicago Dallas Houston Seattle Toronto Montreal Manchester Liverpool Oxford Cambridge",
        "cat dog horse fish bird rabbit mouse snake turtle pig goat sheep cow duck hen frog parrot lizard wolf fox",
    ),
    "heldout": (
        "Edinburgh Glasgow Amsterdam Brussels Venice Naples Jerusalem Baghdad Beijing Shanghai Mumbai Atlanta",
        "bear lion tiger monkey elephant spider bee butterfly owl eagle hawk deer whale shark",
    ),
}
INSTRUCTIONS = "Look people up, then answer."
SEED = 14
_QUESTION = re.compile(r"What is the (?P<field>\w+) of (?P<person>\w+)(?P<boss>'s boss)?\?")
_LOOK = re.compile(r"Look (\w+)")
_ANSWER = re.compile(r"Answer (\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What the directory says of a person."""

    person: str
    city: str
    pet: str
    boss: str

    @property
    def text(self) -> str:
        """The tool's result."""
        return f"city {self.city}, pet {self.pet}, boss {self.boss}"


def directory() -> dict[str, Entry]:
    """The entries of all people, by name."""
    return {entry.person: entry for split in PEOPLE for entry in _entries(split)}


def _entries(split: Split) -> Iterator[Entry]:
    """The entries of a split: each person's boss is the next in a shuffled circle, with other values."""
    draw = random.Random(f"{SEED} {split}")
    people = PEOPLE[split].split()
    draw.shuffle(people)
    cities, pets = (_without_repeats(values.split(), len(people), draw) for values in VALUES[split])
    for i, person in enumerate(people):
        yield Entry(person=person, city=cities[i], pet=pets[i], boss=people[(i + 1) % len(people)])


def _without_repeats(values: list[str], count: int, draw: random.Random) -> list[str]:
    """`count` values around a circle, no two neighbours alike."""
    chosen: list[str] = []
    for place in range(count):
        taken = {*chosen[-1:], *(chosen[:1] if place == count - 1 else ())}
        chosen.append(draw.choice([value for value in values if value not in taken]))
    return chosen


DIRECTORY = directory()


def question_tasks(split: Split) -> list[KernelTask]:
    """Every question of a split: field and person, about the person or their boss."""
    return [
        KernelTask(
            task_id=f"{person.lower()}-{field}{'-of-boss' if of_boss else ''}",
            prompt=question(field, person, of_boss=of_boss),
            reference_src="",
            split=split,
            family="boss" if of_boss else "person",
        )
        for person in PEOPLE[split].split()
        for field in FIELDS
        for of_boss in (False, True)
    ]


def question(field: str, person: str, *, of_boss: bool) -> str:
    """The text of a question."""
    return f"What is the {field} of {person}{chr(39) + 's boss' if of_boss else ''}?"


def right_answer(asked: str) -> str:
    """The right answer to a question. Raises ValueError for a text that is no question of this task."""
    match = _QUESTION.fullmatch(asked)
    if match is None:
        raise ValueError(f"{asked!r} is no question about the directory")
    entry = DIRECTORY[match["person"]]
    answer: str = getattr(DIRECTORY[entry.boss] if match["boss"] else entry, match["field"])
    return answer


def looked_up(said: str) -> str | None:
    """The person that the model looks up; None where it says something else."""
    match = _LOOK.fullmatch(said.strip())
    return match[1] if match else None


def answered(said: str) -> str | None:
    """The model's answer; None where it says something else."""
    match = _ANSWER.fullmatch(said.strip())
    return match[1] if match else None


def tool_result(person: str) -> str:
    """What the tool says about a name."""
    entry = DIRECTORY.get(person)
    return "not found" if entry is None else entry.text
