"""The words of an agent's command line, and what stands for what in them."""

from __future__ import annotations

import pytest

from weir.agents.command.placeholders import LONGEST_ARGUMENT, NAMES, fill, split_command, takes_prompt
from weir.agents.errors import CommandRefused

VALUES = {name: f"<{name}>" for name in NAMES}


def filled(line: str, **values: str) -> list[str]:
    return [fill(word, VALUES | values) for word in split_command(line)]


def test_a_prompt_is_one_argument_whatever_it_holds() -> None:
    prompt = """it's "quoted"; $(rm -rf /) {model} {prompt_file}\n"""
    assert filled("agent --task {prompt} --url={base_url}", prompt=prompt) == [
        "agent",
        "--task",
        prompt,
        "--url=<base_url>",
    ]


def test_braces_that_are_no_placeholders_stay() -> None:
    line = """agent -c '{"a": 1, "b": {}}' '${HOME} ${x}' 'provider={name="x",url="{base_url}"}' '{{prompt}} {model}'"""
    assert filled(line)[2:] == [
        '{"a": 1, "b": {}}',
        "${HOME} ${x}",
        'provider={name="x",url="<base_url>"}',
        "{prompt} <model>",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [("", "empty"), ("agent 'open", "cannot be split"), ("agent {promt}", r"\{promt\} .* is no placeholder")],
)
def test_a_wrong_line_is_refused(line: str, message: str) -> None:
    with pytest.raises(CommandRefused, match=message):
        split_command(line)


def test_an_argument_that_the_kernel_would_refuse_names_the_other_ways() -> None:
    assert fill("{prompt}", VALUES | {"prompt": "é" * (LONGEST_ARGUMENT // 2)})
    with pytest.raises(CommandRefused, match=r"use \{prompt_file\} or stdin"):
        fill("{prompt}", VALUES | {"prompt": "é" * (LONGEST_ARGUMENT // 2 + 1)})


@pytest.mark.parametrize(
    ("line", "takes"), [("a {prompt}", True), ("a @{prompt_file}", True), ("a {model}", False), ("a {{prompt}}", False)]
)
def test_a_command_without_the_prompt_gets_it_by_stdin(line: str, takes: bool) -> None:
    assert takes_prompt(split_command(line)) is takes
