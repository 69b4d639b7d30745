"""The page offers every question of docs/cookbook.md."""

from __future__ import annotations

from pathlib import Path

from weir.ui.data.cookbook import cookbook

PAGE = (Path(__file__).parents[3] / "docs" / "cookbook.md").read_text()


def test_every_question_is_there_with_its_sql_under_its_part() -> None:
    parts = dict(cookbook())
    assert list(parts) == [line[3:] for line in PAGE.splitlines() if line.startswith("## ")]
    questions = [one for of_part in parts.values() for one in of_part]
    assert len(questions) == PAGE.count("```sql") == PAGE.count("\n### ")
    assert all(f"### {question}\n\n```sql\n{query}\n```" in PAGE for question, query in questions)
    assert parts["Is it learning?"][0][0] == "Did the model get better from one weight version to the next?"
