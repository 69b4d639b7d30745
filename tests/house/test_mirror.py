"""tests/ mirrors the folders of the code: who looks for the tests of a folder finds them under the same name."""

from __future__ import annotations

from pathlib import Path

from support_house import PARTS, ROOT, folders

TESTED_ELSEWHERE = {  # folders that are tested through the folders that use them
    "kernel_eval/judge/channel": "kernel_eval/judge/test_verdict_rules.py",
    "kernel_eval/toolchain": "kernel_eval/judge/checks/test_native.py",
    "scripts/cli/commands/judging": "kernel_eval/judge/source/test_recompiling.py",
    "store/catalog/migrations": "store/catalog/test_migrations.py",
    "store/catalog/migrations/versions": "store/catalog/test_migrations.py",
    "store/query/sql": "store/query/test_views.py",
}
FIXTURES = {
    "solutions",
    "honest",
    "version_1",
    "version_2",
    "version_3",
    "version_4",
    "version_5",
    "version_6",
    "version_7",
    "version_8",
    "golden",
    "fake_nvml",
    "__pycache__",
}  # data of tests, no tests


def folders_of_tests() -> set[Path]:
    """Folders below tests/<part>/, relative to tests/."""
    found = (path.relative_to(ROOT / "tests") for part in PARTS for path in (ROOT / "tests" / part).rglob("*"))
    return {path for path in found if (ROOT / "tests" / path).is_dir() and not set(path.parts) & FIXTURES}


def test_every_folder_of_tests_is_a_folder_of_code() -> None:
    of_code = {folder for part in PARTS for folder in folders(part)}
    with_parents = of_code | {parent for folder in of_code for parent in folder.parents}
    assert folders_of_tests() <= with_parents


def test_every_folder_of_code_has_a_folder_of_tests_or_a_test_that_is_named_here() -> None:
    elsewhere = {Path(folder): ROOT / "tests" / test for folder, test in TESTED_ELSEWHERE.items()}
    missing = {folder for part in PARTS for folder in folders(part)} - folders_of_tests() - {Path(p) for p in PARTS}
    assert missing == set(elsewhere)
    for folder, test in elsewhere.items():
        assert test.is_file(), f"{folder}/: there is no {test.relative_to(ROOT)}"
