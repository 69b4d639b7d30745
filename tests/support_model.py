"""A tiny random model with a tokenizer, as a Hugging Face folder: two layers of width 64, made in well under a second.

Invariant: the same arguments give the same bytes, so that two processes which make one hold the same weights. It
knows no language: tests that need sense in the answers script them instead.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Literal

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

Family = Literal["qwen3", "qwen2", "llama", "qwen3_moe"]

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# Qwen3 adds these as ordinary tokens: skip_special_tokens keeps them in the text.
MARKUP_TOKENS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")

_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_CORPUS = (
    "system user assistant tool You are a helpful assistant. Write a Triton kernel that adds two vectors.",
    "import torch\nimport triton\nimport triton.language as tl\n\n@triton.jit\ndef add_kernel(x_ptr, y_ptr, out_ptr, "
    "n, BLOCK: tl.constexpr):\n    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    mask = offsets < n\n"
    "    x = tl.load(x_ptr + offsets, mask=mask)\n    y = tl.load(y_ptr + offsets, mask=mask)\n"
    "    tl.store(out_ptr + offsets, x + y, mask=mask)\n",
    '{"name": "get_weather", "arguments": {"city": "Paris", "unit": "celsius"}}',
    "The quick brown fox jumps over the lazy dog. What is the weather like in Paris today? It is sunny and warm.",
    "class ModelNew(torch.nn.Module):\n    def forward(self, x: torch.Tensor) -> torch.Tensor:\n        return x * 2\n",
)

CHAT_TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- "# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\nYou are provided with \
function signatures within <tools></tools> XML tags:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools>\\n\\nFor each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:\\n<tool_call>\\n{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}\\n\
</tool_call><|im_end|>\\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' + (message.content or '') }}
        {%- for tool_call in message.tool_calls or [] %}
            {%- if (loop.first and message.content) or not loop.first %}
                {{- '\\n' }}
            {%- endif %}
            {%- set call = tool_call.function or tool_call %}
            {{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
            {%- if call.arguments is string %}
                {{- call.arguments }}
            {%- else %}
                {{- call.arguments | tojson }}
            {%- endif %}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""


@functools.cache
def make_tokenizer(vocab_size: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE with Qwen3's markers, trained on a few lines; at most `vocab_size` tokens (at least 300)."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(CONTROL_TOKENS) - len(MARKUP_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS * 4, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKUP_TOKENS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )


def make_tiny_model(
    folder: Path | str,
    *,
    vocab_size: int = 512,
    family: Family = "qwen3",
    seed: int = 0,
    tied: bool = True,
    version: int | None = None,
    hidden_size: int = 64,
    num_layers: int = 2,
    max_position_embeddings: int = 4096,
    dropout: float = 0.0,
) -> Path:
    """Write a random model of `family` and its tokenizer to `folder`; `version` also writes a manifest.json with it.

    Weights are drawn wide enough (0.2 instead of 0.02) for greedy decoding to differ from prompt to prompt.
    """
    folder = Path(folder)
    tokenizer = make_tokenizer(vocab_size)
    shape = {
        "vocab_size": vocab_size,
        "hidden_size": hidden_size,
        "intermediate_size": 2 * hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": max_position_embeddings,
        "tie_word_embeddings": tied,
        "initializer_range": 0.2,
        "attention_dropout": dropout,
        "bos_token_id": None,
        "eos_token_id": tokenizer.convert_tokens_to_ids("<|im_end|>"),
        "pad_token_id": tokenizer.convert_tokens_to_ids("<|endoftext|>"),
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if family == "qwen3":
            model = Qwen3ForCausalLM(Qwen3Config(**shape, head_dim=hidden_size // 4))
        elif family == "qwen2":
            model = Qwen2ForCausalLM(Qwen2Config(**shape))
        elif family == "qwen3_moe":
            experts = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": hidden_size // 2}
            heads = {"head_dim": hidden_size // 4, "norm_topk_prob": True}
            model = Qwen3MoeForCausalLM(Qwen3MoeConfig(**shape, **experts, **heads))
        else:
            model = LlamaForCausalLM(LlamaConfig(**shape, head_dim=hidden_size // 4))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if version is not None:
        (folder / "manifest.json").write_text(json.dumps({"version": version}))
    return folder
