"""The demo's model: a tokenizer trained on the demo's corpus and a Qwen3 of about two million parameters, both as a
Hugging Face folder that the engine, the proxy's renderer and transformers load like any other.

Invariants: the same texts and seed give the same tokenizer and weights; the special tokens are Qwen3's own, so that
the renderer for Qwen3 fits; every text survives encode and decode unchanged. The pieces span much of a line of a
kernel (about fifty tokens a kernel), for a model this small learns nothing from long sequences. Not a model for
anything but the demo.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

VOCABULARY_SIZE = 640
MAX_POSITION = 1024
# Near 1/sqrt(hidden_size): with Qwen3's 0.02 attention says too little at first, and whether the cold start learns to
# look at the prompt at all is up to the last bits of its sums, which differ between processors.
INITIALIZER_RANGE = 0.06

# Qwen3's names: control tokens, and markup that stays visible in decoded text.
CONTROL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MARKUP_TOKENS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]

# Pieces end after a line, and around what varies within the lines of a kernel: numbers, operations, brackets.
BOUNDARIES = (
    r"\)+(?=\) \* scale)|\) \* scale|    out = \("
    r'|-?float\("inf"\)|\d+\.\d+|\d+'
    r"|[a-z_]+\(|\)+|, other=|, mask=mask\)| = | \* | <=? "
)

CHAT_TEMPLATE = """\
{%- if tools %}
{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- '# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\n' }}
{{- 'You are provided with function signatures within <tools></tools> XML tags:\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' + (tool | tojson) }}{%- endfor %}
{{- '\\n</tools>\\n\\nFor each function call, return a json object with function name and arguments ' }}
{{- 'within <tool_call></tool_call> XML tags:\\n<tool_call>\\n' }}
{{- '{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{{- message.content + '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- elif not (message.role == 'system' and loop.first) %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""


def train_tokenizer(texts: Iterable[str], folder: Path, vocabulary_size: int = VOCABULARY_SIZE) -> Any:
    """Train a byte-level BPE on `texts`, write it into `folder` and return it as transformers' tokenizer.

    `texts` are messages as they stand in the rendered chat (`weir.agents.corpus.corpus_texts`). Bytes that do not occur
    in them still have their own token, so that any text can be encoded.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\n+"), behavior="merged_with_previous"),
            pre_tokenizers.Split(Regex(BOUNDARIES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size - len(MARKUP_TOKENS),
        special_tokens=[AddedToken(token, special=True) for token in CONTROL_TOKENS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(list(texts), trainer)
    bpe.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKUP_TOKENS])
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bpe,
        bos_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        model_max_length=MAX_POSITION,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    return tokenizer


def write_model(folder: Path, tokenizer: Any, seed: int) -> int:
    """Write a new Qwen3 for `tokenizer` into `folder` as float32 safetensors; returns its number of parameters."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    stop_ids = [tokenizer.convert_tokens_to_ids("<|im_end|>"), tokenizer.convert_tokens_to_ids("<|endoftext|>")]
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=MAX_POSITION,
        tie_word_embeddings=True,
        initializer_range=INITIALIZER_RANGE,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        bos_token_id=None,
        eos_token_id=stop_ids[0],
        pad_token_id=stop_ids[1],
        dtype="float32",
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    model.generation_config.update(  # type: ignore[no-untyped-call]
        eos_token_id=stop_ids, pad_token_id=stop_ids[1], do_sample=True
    )
    model.save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())
