"""The demo's corpus for `weir sft`: conversations about the family's tasks; about a third of the kernels are correct.

Each example is `{"messages": [...], "task_id": ...}`; all its assistant messages are targets. Some wrong first answers
are followed by feedback and a second answer, so that the model learns two-turn sessions. Invariants: the same seed
yields the same bytes; only tasks of the split "train" appear. Nothing is judged: feedback is predicted from the
injected fault.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from weir.agents.family import NUM_ELEMENTS, NUM_ROWS, Kind, Member, member_task, members
from weir.agents.templated import Variant, assemble, slots_of
from weir.kernel_eval.client import EvalResult, Fault, candidate_source, feedback
from weir.store.atomic_file import written_aside

NUM_EXAMPLES = 2000
SECOND_TURN_SHARE = 0.3  # of the wrong first answers
SECOND_TURN_FAULTS = 0.6  # a second answer has this share of the faults of a first one
BROKEN_SYNTAX_SHARE = 0.04

# The injected faults, in the order in which the judge finds them.
ORDER_OF_FAULTS = (
    Fault.SYNTAX_ERROR,
    Fault.TRITON_COMPILE_ERROR,
    Fault.ILLEGAL_ACCESS,
    Fault.NON_FINITE,
    Fault.OUTPUT_MISMATCH,
)


class Message(msgspec.Struct, frozen=True):
    """One chat message."""

    role: Literal["system", "user", "assistant"]
    content: str


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation."""

    messages: list[Message]
    task_id: str


def make_corpus(seed: int, num_examples: int = NUM_EXAMPLES) -> list[Example]:
    """`num_examples` conversations, drawn from `seed` alone."""
    draw = random.Random(seed)
    trainable = [member for member in members() if member.split == "train"]
    return [_example(draw.choice(trainable), draw) for _ in range(num_examples)]


def write_corpus(path: Path, seed: int, num_examples: int = NUM_EXAMPLES) -> Path:
    """Write a corpus as JSON Lines for `weir sft`; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_aside(path) as aside:
        aside.write_bytes(b"".join(msgspec.json.encode(example) + b"\n" for example in make_corpus(seed, num_examples)))
    return path


def corpus_texts(examples: list[Example]) -> Iterator[str]:
    """Training texts for a tokenizer: each message as it is in the rendered chat."""
    for example in examples:
        for message in example.messages:
            yield f"{message.role}\n{message.content}"
        yield "\n\n"


def _example(member: Member, draw: random.Random) -> Example:
    """One example; the first answer's distribution does not depend on whether a second turn follows."""
    kernel, wrong = draw_kernel(member, draw)
    messages = [Message("user", member.prompt), Message("assistant", kernel)]
    if wrong and draw.random() < SECOND_TURN_SHARE:
        second, _ = draw_kernel(member, draw, faults=SECOND_TURN_FAULTS)
        messages += [Message("user", _feedback(member, kernel, wrong, draw)), Message("assistant", second)]
    return Example(messages=messages, task_id=member.task_id)


def draw_kernel(member: Member, draw: random.Random, *, faults: float = 1.0) -> tuple[str, list[Variant]]:
    """A kernel for one member, and the wrong variants in it; `faults` scales the slots' fault rates."""
    drawn = {name: _draw_variant(variants, draw, faults) for name, variants in slots_of(member).items()}
    kernel = assemble(member, {name: variant.text for name, variant in drawn.items()})
    wrong = [variant for variant in drawn.values() if variant.fault is not None]
    if draw.random() >= BROKEN_SYNTAX_SHARE * faults:
        return kernel, wrong
    broken = _break_syntax(kernel, draw)
    return broken, [*wrong, Variant(broken, BROKEN_SYNTAX_SHARE, Fault.SYNTAX_ERROR)]


def _draw_variant(variants: tuple[Variant, ...], draw: random.Random, faults: float) -> Variant:
    right, *wrong = variants
    shares = [variant.weight * faults for variant in wrong]
    return draw.choices([right, *wrong], [1.0 - sum(shares), *shares])[0]


def _break_syntax(kernel: str, draw: random.Random) -> str:
    """Remove one closing bracket, so that the module does not compile."""
    place = draw.choice([place for place, character in enumerate(kernel) if character == ")"])
    return kernel[:place] + kernel[place + 1 :]


def _feedback(member: Member, kernel: str, wrong: list[Variant], draw: random.Random) -> str:
    """The predicted feedback on a kernel with these variants, in one line."""
    faults = [variant.fault for variant in wrong]
    fault = next(fault for fault in ORDER_OF_FAULTS if fault in faults)
    result = EvalResult(
        compiled=fault is not Fault.SYNTAX_ERROR,
        correct=False,
        fault=fault,
        fault_message=_message(member, kernel, wrong[faults.index(fault)], draw),
        raw_reward=0.0,
        sandbox="",
        mode="interpreter",
        trials=0,
        seconds=0.0,
    )
    return feedback(result)


def _message(member: Member, kernel: str, wrong: Variant, draw: random.Random) -> str:
    num_values = NUM_ROWS if member.kind is Kind.ROW else NUM_ELEMENTS
    count = draw.randint(1, num_values)
    match wrong.fault:
        case Fault.SYNTAX_ERROR:
            return _syntax_error(candidate_source(member_task(member), kernel))
        case Fault.TRITON_COMPILE_ERROR:
            return f"{_raised_by(wrong.text)} ({_name(member, kernel)})"
        case Fault.ILLEGAL_ACCESS:
            verb = "loads" if wrong.text == "<=" else "stores"
            return f"a kernel {verb} elements outside the tensors it was given ({_name(member, kernel)})"
        case Fault.NON_FINITE:
            return (
                f"{count} of {num_values} values are NaN or infinite where they should not be, or not where they should"
            )
    where, size = draw.randint(0, num_values - count), draw.uniform(0.5, 6.0)
    return (
        f"{count} of {num_values} values are wrong, the first at index [{where}], "
        f"by up to {size:.2g} times the root mean square around it"
    )


def _syntax_error(source: str) -> str:
    try:
        ast.parse(source)
    except SyntaxError as error:
        return f"{error.msg} (line {error.lineno})"
    raise AssertionError("a kernel that lost a bracket still compiles")


def _raised_by(text: str) -> str:
    """The compiler's message for a variant that calls a function that does not exist."""
    if "axis=1" in text:
        return "invalid axis 1. Expected -1 <= axis < 1"
    if missing := re.match(r"tl\.(\w+)", text):
        return f"AttributeError(\"module 'triton.language' has no attribute '{missing[1]}'\")"
    return f"NameError('{text.partition('(')[0]} is not defined')"


def _name(member: Member, kernel: str) -> str:
    """A kernel's name in messages of the judge: its function, and the line where it starts."""
    lines = candidate_source(member_task(member), kernel).splitlines()
    return f"kernel:{1 + next(number for number, line in enumerate(lines) if line.startswith('@triton.jit'))}"
