"""The share of passed tests in a JUnit XML report.

Source of the form: https://github.com/testmoapp/junitxml. A report comes from untrusted code: it is read within a size
limit, and documents that define entities are refused.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

MOST_BYTES = 16 << 20


def passed_share(report: bytes, num_tests: int | None) -> float:
    """Passed tests over all tests, or over `num_tests` where the report names fewer; 0 for no report or no test.

    Skipped tests count as not passed. Raises ValueError for what is no JUnit XML.
    """
    if b"<!DOCTYPE" in report or b"<!ENTITY" in report:
        raise ValueError("the report defines entities")
    try:
        cases = list(ElementTree.fromstring(report).iter("testcase"))
    except ElementTree.ParseError as error:
        raise ValueError(f"the report is not XML: {error}") from error
    passed = sum(
        not any(case.find(outcome) is not None for outcome in ("failure", "error", "skipped")) for case in cases
    )
    total = max(len(cases), num_tests or 0)
    return passed / total if total else 0.0
