"""What a model says to an agent that adds by a tool: a thought and two calls at once, one more call, the answer.

One call has its arguments in an order of its own, which the agent has to send back as it was.
"""

from __future__ import annotations

TASK = "What is 2 + 3 + 10 + 1?"
ASKS = [
    "<think>\nTwo sums.\n</think>\n\n"
    'First.\n<tool_call>\n{"name": "add", "arguments": {"a": 2, "b": 3}}\n</tool_call>\n'
    '<tool_call>\n{"name": "add", "arguments": {"b": 10, "a": 5}}\n</tool_call>',
    '<tool_call>\n{"name": "add", "arguments": {"a": 15, "b": 1}}\n</tool_call>',
    "The sum is 16.",
]
