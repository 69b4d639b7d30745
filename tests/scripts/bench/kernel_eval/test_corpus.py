"""`weir bench kernel-eval --corpus` over a corpus of four files, of which two are not what their folders say."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import httpx
import pytest

from weir.scripts.bench.kernel_eval import corpus
from weir.scripts.bench.kernel_eval.corpus import cases
from weir.scripts.launch.errors import NoDevice, UsageError

TESTS = Path(__file__).parents[3]


def test_the_whole_corpus_is_found() -> None:
    found = list(cases(TESTS))
    assert sum(not case.honest for case in found) >= 100
    assert sum(case.honest for case in found) >= 75
    assert all("get_inputs" in case.task and "class Model(" in case.task for case in found)


def test_judges_with_a_gpu_get_all_cheats_and_the_one_that_needs_a_gpu() -> None:
    without, on_gpu = ({case.name: case for case in cases(TESTS, on_gpu=there)} for there in (False, True))
    assert on_gpu.keys() - without.keys() == {"pins_inputs_in_the_cache"}
    assert without.keys() <= on_gpu.keys()
    assert on_gpu["tells_timed_calls_apart"].perf_trials == 3
    assert not any(case.perf_trials for case in without.values())


def test_a_server_without_a_gpu_is_not_taken_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "cases", lambda folder, on_gpu: iter(()))
    monkeypatch.setattr(corpus.server, "running_server", lambda settings: nullcontext(("http://unused", 0)))
    monkeypatch.setattr(corpus.httpx, "get", lambda url, **how: httpx.Response(200, json={"mode": "interpreter"}))
    with pytest.raises(NoDevice, match="the server judges as interpreter"):
        corpus.main(tmp_path, 1, on_gpu=True)


def test_a_folder_that_holds_no_corpus_is_an_error_that_says_which_one_does(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="folder `tests`"):
        list(cases(tmp_path))


def test_both_rates_count_what_was_judged_otherwise_than_its_folder_says(tmp_path: Path) -> None:
    cheats, reported, honest = (tmp_path / name for name in ("cheats", "cheats/reported", "kernel_eval/honest"))
    for folder in (reported, honest):
        folder.mkdir(parents=True)
    example = TESTS / "kernel_eval"
    shutil.copy(example / "example_relu_task.py", tmp_path / "kernel_eval")
    shutil.copy(TESTS / "cheats/answers_zeros.py", cheats)
    shutil.copy(example / "example_relu_candidate.py", cheats / "no_cheat_at_all.py")
    for name in ("hinge_no_clamp.py", "hinge_no_clamp.task.py"):
        shutil.copy(TESTS / "cheats/reported" / name, reported)
    right = (example / "honest/booleans.py").read_text()
    exact = (example / "honest/linear_bias_relu.py").read_text()
    (honest / "in_tf32.py").write_text(exact.replace(', input_precision="ieee"', ""))
    (honest / "wrong.py").write_text(right.replace("tl.store(", "pass  # tl.store("))
    command = [sys.executable, "-m", "weir.scripts.cli.main", "bench", "kernel-eval", "--corpus", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["cheats"], figures["cheats_rewarded"]) == (3, 1)
    assert (figures["honest"], figures["honest_refused"]) == (2, 1)
    assert (figures["cheats_rewarded_rate"], figures["honest_refused_rate"]) == (1 / 3, 1 / 2)
    assert "cheats_rewarded: no_cheat_at_all" in done.stdout
    assert "honest_refused: wrong" in done.stdout
    assert figures["honest_in_tf32"] == 1
    assert "honest_in_tf32: in_tf32" in done.stdout
