"""Fills the placeholders of an agent's command line, word by word, so that no prompt is parsed by a shell.

    {prompt} {prompt_file}   the prompt as an argument, or the path of a file that holds it; without either it is stdin
    {base_url} {anthropic_base_url} {api_key} {model}   where to call, and as what
    {work} {task_id} {session} {seed}                   the working folder, the task, the session, its sampling seed

`{{name}}` stands for a literal `{name}`. Other braces, as in JSON, stay as they are.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from weir.agents.errors import CommandRefused

NAMES = (
    "prompt",
    "prompt_file",
    "base_url",
    "anthropic_base_url",
    "api_key",
    "model",
    "work",
    "task_id",
    "session",
    "seed",
)
LONGEST_ARGUMENT = (1 << 17) - 1  # bytes; the kernel refuses a longer one
_PLACE = re.compile(r"\{\{([a-z_]+)\}\}|(?<!\$)\{([a-z_]+)\}")


def split_command(line: str) -> list[str]:
    """The words of a command line. Raises `CommandRefused` for none, an open quote or an unknown placeholder."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise CommandRefused(f"the agent's command {line!r} cannot be split into words: {error}") from error
    if not words:
        raise CommandRefused("the agent's command is empty; give a program and its arguments")
    for word in words:
        check_places(word)
    return words


def check_places(text: str) -> None:
    """Raise `CommandRefused` for a placeholder that does not exist."""
    for match in _PLACE.finditer(text):
        name = match[2]
        if name is not None and name not in NAMES:
            raise CommandRefused(
                f"{{{name}}} in the agent's command is no placeholder; there are {', '.join(NAMES)}; "
                f"write {{{{{name}}}}} for the text itself"
            )


def takes_prompt(words: list[str]) -> bool:
    """Whether the command gets the prompt by an argument or a file, and not by stdin."""
    return any(match[2] in ("prompt", "prompt_file") for word in words for match in _PLACE.finditer(word))


def fill(word: str, values: Mapping[str, str]) -> str:
    """A word with its placeholders replaced. Raises `CommandRefused` where the kernel would refuse its length."""
    filled = _PLACE.sub(lambda match: f"{{{match[1]}}}" if match[1] else values[match[2]], word)
    if len(filled.encode(errors="replace")) > LONGEST_ARGUMENT:
        raise CommandRefused(
            f"the argument {word!r} is longer than {LONGEST_ARGUMENT} bytes with this prompt; "
            "use {prompt_file} or stdin"
        )
    return filled
