"""Every file of tests/cheats is a candidate for the relu task; its constants say what must become of it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

CHEATS = sorted((Path(__file__).parent.parent / "cheats").glob("*.py"))


def constants(source: str) -> dict[str, Any]:
    """Read, not imported: a cheat must not run here."""
    assigned = [node for node in ast.parse(source).body if isinstance(node, ast.Assign)]
    named = {node.targets[0].id: node.value for node in assigned if isinstance(node.targets[0], ast.Name)}
    return {name: value.value for name, value in named.items() if isinstance(value, ast.Constant)}


@pytest.mark.parametrize("path", CHEATS, ids=lambda path: path.stem)
def test_a_cheat_is_found_out(path: Path, contained_server: Any) -> None:
    source = path.read_text()
    stated = constants(source)
    reply = contained_server.evaluate(source)
    assert (reply["fault"], reply["details"].get("rule")) == (stated["EXPECTED"], stated.get("RULE")), reply
    assert not reply["correct"]
    assert reply["raw_reward"] <= 0.3


def test_the_server_still_judges_rightly_after_all_of_them(contained_server: Any, read_example: Any) -> None:
    reply = contained_server.evaluate(read_example("relu_candidate"))
    assert (reply["correct"], reply["raw_reward"], reply["fault"]) == (True, 1.0, None)
