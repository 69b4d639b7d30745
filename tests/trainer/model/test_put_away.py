"""Training state that leaves the device and comes back: the same bits, and no memory meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support_samples import make_samples

from weir.trainer.errors import TrainerError
from weir.trainer.learner.learner import Learner
from weir.trainer.model.put_away import PutAway
from weir.trainer.settings.config import TrainerConfig


@pytest.mark.parametrize("more", [{}, {"advantage": "gae"}, {"ema": 0.9, "precision": "bfloat16"}])
def test_a_learner_that_slept_takes_the_same_steps(
    more: dict[str, object], tiny_model_dir: Path, tmp_path: Path
) -> None:
    config = TrainerConfig(device="cpu", lr=1e-3, **more)  # type: ignore[arg-type]
    samples = make_samples(tiny_model_dir, [(3, 9), (8, 5), (4, 7)], noise=0.1)
    learners = [Learner(tiny_model_dir, config) for _ in range(2)]
    for number, learner in enumerate(learners):
        learner.train(samples, fresh_version=0, seed=0)
        if number:
            learner.sleep(tmp_path)
            held = sum(tensor.untyped_storage().nbytes() for tensor in learner.stepper.tensors(learner.device))
            assert held == 0
            learner.wake()
        learner.train(samples, fresh_version=1, seed=1)
        (tmp_path / str(number)).mkdir()
        learner.save(tmp_path / str(number))
    for file in ("model.safetensors", "trainer_state.pt"):
        one, other = ((tmp_path / name / file) for name in ("0", "1"))
        if file.endswith("safetensors"):
            assert one.read_bytes() == other.read_bytes()
        else:
            states = [torch.load(path, weights_only=True) for path in (one, other)]
            assert str(states[0]) == str(states[1])


def test_a_device_is_the_same_with_its_index_and_without(tiny_model_dir: Path) -> None:
    learner = Learner(tiny_model_dir, TrainerConfig(device="cpu"))
    named, indexed = (list(learner.stepper.tensors(torch.device(name))) for name in ("cpu", "cpu:0"))
    assert len(named) == len(indexed) == len(list(learner.model.parameters())) + len(list(learner.model.buffers()))


def test_the_largest_tensors_go_until_the_rest_may_stay(tmp_path: Path) -> None:
    small, large = torch.arange(10.0), torch.arange(1000.0)
    view = large[500:]
    away = PutAway([small, large, view], tmp_path, may_stay=100)
    assert away.num_bytes == 4000
    assert (small.untyped_storage().nbytes(), large.untyped_storage().nbytes()) == (40, 0)
    away.bring_back()
    assert torch.equal(view, torch.arange(500.0, 1000.0))
    assert torch.equal(large, torch.arange(1000.0))


def test_where_there_is_no_room_nothing_has_moved(tmp_path: Path) -> None:
    tensor = torch.arange(1000.0)
    with pytest.raises(TrainerError, match="make room there"):
        PutAway([tensor], tmp_path / "missing")
    assert torch.equal(tensor, torch.arange(1000.0))
    assert list(tmp_path.iterdir()) == []


def test_a_machine_without_memory_for_a_gpu_s_tensors_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA error: out of memory")

    monkeypatch.setattr(PutAway, "_copy", refuse)  # as pinning does, which only GPUs have
    tensor = torch.arange(1000.0)
    with pytest.raises(TrainerError, match=r"the machine's memory: CUDA error.*make room there"):
        PutAway([tensor], tmp_path)
    assert torch.equal(tensor, torch.arange(1000.0))
