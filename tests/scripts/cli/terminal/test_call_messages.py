"""Messages of a recorded request and answer as lines: items of Responses."""

from __future__ import annotations

from weir.scripts.cli.terminal.call_messages import Line, answer_lines, new_lines, request_lines

CALL = {"type": "custom_tool_call", "call_id": "t1", "name": "apply_patch", "input": "+ a"}
RESULT = {"type": "custom_tool_call_output", "call_id": "t1", "output": [{"type": "input_text", "text": "Applied."}]}


def test_a_custom_tool_is_called_with_its_input_and_its_result_is_new() -> None:
    request = {"input": [{"role": "user", "content": "Edit a.py."}, CALL, RESULT]}
    lines = [Line("user", "Edit a.py."), Line("calls", "apply_patch + a"), Line("tool", "Applied.")]
    assert request_lines(request) == lines
    assert new_lines(request) == lines[2:]
    assert answer_lines(CALL) == lines[1:2]
