"""Chat templates of the forms that model families have, and model folders with them.

None is a family's own text. What is like the family's: its markers, where system prompts and tools stand, how calls and
results are written, and what of earlier turns is left out. Tokenizers are made here,
byte-level or in the way of SentencePiece.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from support_model import make_tokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from weir.proxy.config import ProxyConfig
from weir.proxy.rendering.opening import open_rendering
from weir.proxy.rendering.renderer import Rendering

_CHATML_TURN = "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
_CHATML_OPENS = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
SMOLLM2 = (
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}"
    "{{ '<|im_start|>system\\nYou are a helper.<|im_end|>\\n' }}{% endif %}"
    + _CHATML_TURN
    + "{% endfor %}"
    + _CHATML_OPENS
)
_HERMES_SYSTEM = (
    "{% set first = messages[0].content if messages[0].role == 'system' else 'You are a helper.' %}"
    "{{ '<|im_start|>system\\n' + first }}{% if tools %}{{ '\\n\\n# Tools\\n<tools>' }}"
    "{% for t in tools %}{{ '\\n' + t | tojson }}{% endfor %}{{ '\\n</tools>' }}{% endif %}{{ '<|im_end|>\\n' }}"
)
_HERMES_CALLS = (
    '{% for c in m.tool_calls %}{{ \'\\n<tool_call>\\n{"name": "\' + c.function.name + \'", "arguments": \''
    " + (c.function.arguments if c.function.arguments is string else c.function.arguments | tojson)"
    " + '}\\n</tool_call>' }}{% endfor %}"
)
_AFTER_TEXT = "('\\n' if m.content or not loop.first else '') + '<tool"
_HERMES_RESULT = (
    "{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}"
    "{{ '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}"
)
QWEN25 = (
    _HERMES_SYSTEM + "{% for m in messages %}{% if m.role == 'tool' %}" + _HERMES_RESULT + "{% elif m.tool_calls %}"
    "{{ '<|im_start|>assistant' }}{% if m.content %}{{ '\\n' + m.content }}{% endif %}"
    + _HERMES_CALLS
    + "{{ '<|im_end|>\\n' }}"
    "{% elif not (m.role == 'system' and loop.first) %}" + _CHATML_TURN + "{% endif %}{% endfor %}" + _CHATML_OPENS
)
# Thoughts stand only behind the last question, and an empty thought opens the answers that are not to think.
QWEN3 = (
    _HERMES_SYSTEM + "{% set ns = namespace(asked=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.asked = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% if m.role == 'tool' %}" + _HERMES_RESULT + "{% elif m.role == 'assistant' %}"
    "{{ '<|im_start|>assistant\\n' }}{% if loop.index0 > ns.asked and (loop.last or m.reasoning_content) %}"
    "{{ '<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n' }}{% endif %}{{ m.content }}"
    "{% if m.tool_calls %}" + _HERMES_CALLS.replace("'\\n<tool", _AFTER_TEXT) + "{% endif %}{{ '<|im_end|>\\n' }}"
    "{% elif not (m.role == 'system' and loop.first) %}"
    + _CHATML_TURN
    + "{% endif %}{% endfor %}"
    + _CHATML_OPENS
    + "{% if "
    "add_generation_prompt and enable_thinking is defined and enable_thinking is false %}"
    "{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}"
)
_HEAD = "{{ '<|start_header_id|>%s<|end_header_id|>\\n\\n' }}"
LLAMA3 = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set first = messages[0].content | trim %}"
    "{% set messages = messages[1:] %}{% else %}{% set first = '' %}{% endif %}"
    + _HEAD
    % "system"
    + "{{ 'Today Date: ' + (date_string or '26 Jul 2024') + '\\n\\n' + first + '<|eot_id|>' }}"
    "{% if tools %}"
    + _HEAD
    % "user"
    + '{{ \'Respond in the format {"name": function name, "parameters": dictionary}.\\n\\n\' }}'
    "{% for t in tools %}{{ t | tojson(indent=4) + '\\n\\n' }}{% endfor %}{{ messages[0].content | trim"
    " + '<|eot_id|>' }}"
    "{% set messages = messages[1:] %}{% endif %}{% for m in messages %}{% if 'tool_calls' in m %}"
    "{% if m.tool_calls | length != 1 %}{{ raise_exception('one call at a time') }}{% endif %}"
    + _HEAD
    % "assistant"
    + '{{ \'{"name": "\' + m.tool_calls[0].function.name + \'", "parameters": \' }}'
    "{{ m.tool_calls[0].function.arguments | tojson + '}<|eot_id|>' }}{% elif m.role == 'tool' %}"
    + _HEAD
    % "ipython"
    + "{{ m.content | tojson + '<|eot_id|>' }}{% else %}"
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}" + _HEAD % "assistant" + "{% endif %}"
)
# Tools and system prompt stand at the latest question, so that they move with each turn; ids have nine letters.
MISTRAL = (
    "{% if messages[0].role == 'system' %}{% set first = messages[0].content %}"
    "{% set messages = messages[1:] %}{% endif %}"
    "{% set asked = messages | selectattr('role', 'equalto', 'user') | list %}{{ bos_token }}{% for m in messages %}"
    "{% if m.role == 'user' %}{% if tools and m == asked[-1] %}{{ '[AVAILABLE_TOOLS]' + tools | tojson"
    " + '[/AVAILABLE_TOOLS]' }}"
    "{% endif %}{{ '[INST]' + (first + '\\n\\n' if loop.last and first is defined else '') + m.content + '[/INST]' }}"
    "{% elif m.tool_calls %}{{ '[TOOL_CALLS][' }}{% for c in m.tool_calls %}"
    "{% if c.id | length != 9 %}{{ raise_exception('ids of nine letters') }}{% endif %}"
    "{{ (c.function | tojson)[:-1] + ', \"id\": \"' + c.id + '\"}' + ('' if loop.last else ', ') }}{% endfor %}"
    "{{ ']' + eos_token }}{% elif m.role == 'tool' %}"
    "{% if m.tool_call_id | length != 9 %}{{ raise_exception('ids of nine letters') }}{% endif %}"
    "{{ '[TOOL_RESULTS]{\"content\": ' + m.content + ', \"call_id\": \"' + m.tool_call_id + '\"}[/TOOL_RESULTS]' }}"
    "{% elif m.role == 'assistant' %}{{ m.content + eos_token }}{% endif %}{% endfor %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must alternate') }}"
    "{% endif %}{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + m.content | trim"
    " + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}"
)
# Arguments are text, a message of calls has no content, and what was thought is cut away.
DEEPSEEK = (
    "{% set ns = namespace(tool=false, asked=false) %}{{ bos_token }}"
    "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% endif %}{% endfor %}"
    "{% if tools %}{{ '\\n\\n## Tools\\n' + tools | tojson }}{% endif %}{% for m in messages %}"
    "{% if m.role == 'user' %}"
    "{% set ns.tool = false %}{% set ns.asked = true %}{{ '<｜User｜>' + m.content }}"
    "{% elif m.tool_calls and m.content is none %}"
    "{% if ns.asked %}{{ '<｜Assistant｜>' }}{% endif %}{% set ns.asked = false %}{{ '<｜tool▁calls▁begin｜>' }}"
    "{% for c in m.tool_calls %}{{ '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + c.function.name + '\\n```json\\n'"
    " + c.function.arguments + '\\n```<｜tool▁call▁end｜>' }}{% endfor %}"
    "{{ '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}"
    "{% elif m.role == 'assistant' %}{% if ns.asked %}{{ '<｜Assistant｜>' }}{% endif %}{% set ns.asked = false %}"
    "{% set ns.tool = false %}{{ m.content.split('</think>')[-1] + '<｜end▁of▁sentence｜>' }}"
    "{% elif m.role == 'tool' %}"
    "{% set ns.asked = false %}{% set ns.tool = true %}{{ '<｜tool▁output▁begin｜>' + m.content"
    " + '<｜tool▁output▁end｜>' }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt and not ns.tool %}{{ '<｜Assistant｜>' }}{% endif %}"
)
# No token ends a turn: the next one's opening does.
GLM = (
    "[gMASK]<sop>{% if tools %}{{ '<|system|>\\n# Tools\\n<tools>\\n' }}{% for t in tools %}{{ t | tojson"
    " + '\\n' }}{% endfor %}"
    "{{ '</tools>' }}{% endif %}{% set ns = namespace(asked=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set ns.asked = loop.index0 %}{% endif %}{% endfor %}{% for m in messages %}{% if m.role == 'assistant' %}"
    "{{ '<|assistant|>\\n<think>'"
    " + (m.reasoning_content if loop.index0 > ns.asked and m.reasoning_content else '') + '</think>' }}"
    "{% if m.content %}{{ '\\n' + m.content }}{% endif %}{% for c in m.tool_calls or [] %}{{ '\\n<tool_call>'"
    " + c.function.name }}"
    "{% for k, v in c.function.arguments.items() %}{{ '\\n<arg_key>' + k + '</arg_key>\\n<arg_value>' }}"
    "{{ (v if v is string else v | tojson) + '</arg_value>' }}{% endfor %}{{ '\\n</tool_call>' }}{% endfor %}"
    "{% elif m.role == 'tool' %}{% if messages[loop.index0 - 1].role != 'tool' %}{{ '<|observation|>' }}{% endif %}"
    "{{ '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}{% else %}{{ '<|' + m.role + '|>\\n'"
    " + m.content }}"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
# A last answer ends otherwise than an earlier one, and thoughts stay only while their calls are under way.
GPT_OSS = (
    "{{ '<|start|>system<|message|>Reasoning: ' + (reasoning_effort or 'medium') + '<|end|>' }}"
    "{% set ns = namespace(called='', done=-1) %}{% for m in messages %}"
    "{% if m.role == 'assistant' and not m.tool_calls %}{% set ns.done = loop.index0 %}{% endif %}{% endfor %}"
    "{% if messages[0].role in ['system', 'developer'] or tools %}{{ '<|start|>developer<|message|>' }}"
    "{% if messages[0].role in ['system', 'developer'] %}{{ '# Instructions\\n\\n' + messages[0].content }}"
    "{% endif %}"
    "{% for t in tools or [] %}{{ '\\n\\ntype ' + t.function.name + ' = ' + t.function.parameters | tojson }}"
    "{% endfor %}"
    "{{ '<|end|>' }}{% endif %}{% for m in messages %}{% if m.tool_calls %}"
    "{% set ns.called = m.tool_calls[0].function.name %}"
    "{% if m.reasoning_content and loop.index0 > ns.done %}"
    "{{ '<|start|>assistant<|channel|>analysis<|message|>' + m.reasoning_content + '<|end|>' }}{% endif %}"
    "{{ '<|start|>assistant to=functions.' + ns.called + '<|channel|>commentary json<|message|>' }}"
    "{{ m.tool_calls[0].function.arguments | tojson + '<|call|>' }}{% elif m.role == 'assistant' %}"
    "{{ '<|start|>assistant<|channel|>final<|message|>' + m.content }}"
    "{{ '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}{% elif m.role == 'tool' %}"
    "{{ '<|start|>functions.' + ns.called + ' to=assistant<|channel|>commentary<|message|>' + m.content"
    " + '<|end|>' }}"
    "{% elif m.role == 'user' %}{{ '<|start|>user<|message|>' + m.content + '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A family's template, its own tokens, and the tokens that end an answer, the usual one first."""

    template: str
    tokens: tuple[str, ...]
    ends: tuple[str, ...]
    markup: tuple[str, ...] = ()  # added tokens that are not special
    bos: str | None = None
    pieces: bool = False  # a tokenizer in the way of SentencePiece


_CHATML = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
_THINK = ("<think>", "</think>")
_CALL = ("<tool_call>", "</tool_call>")
FORMS: dict[str, Form] = {
    "smollm2": Form(template=SMOLLM2, tokens=_CHATML, ends=("<|im_end|>",)),
    "qwen2.5": Form(template=QWEN25, tokens=_CHATML, markup=_CALL, ends=("<|im_end|>", "<|endoftext|>")),
    "qwen3": Form(template=QWEN3, tokens=_CHATML, markup=(*_CALL, *_THINK), ends=("<|im_end|>", "<|endoftext|>")),
    "llama-3": Form(
        template=LLAMA3,
        tokens=("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"),
        ends=("<|eot_id|>", "<|eom_id|>"),
        bos="<|begin_of_text|>",
    ),
    "mistral": Form(
        template=MISTRAL,
        tokens=(
            *("<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
            *("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        ),
        ends=("</s>",),
        bos="<s>",
        pieces=True,
    ),
    "gemma": Form(
        template=GEMMA,
        tokens=("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        ends=("<eos>", "<end_of_turn>"),
        bos="<bos>",
        pieces=True,
    ),
    "deepseek": Form(
        template=DEEPSEEK,
        tokens=tuple(
            f"<｜{name}｜>"
            for name in (
                *("begin▁of▁sentence", "end▁of▁sentence", "User", "Assistant", "tool▁calls▁begin", "tool▁calls▁end"),
                *("tool▁call▁begin", "tool▁call▁end", "tool▁sep", "tool▁output▁begin", "tool▁output▁end"),
            )
        ),
        markup=_THINK,
        ends=("<｜end▁of▁sentence｜>",),
        bos="<｜begin▁of▁sentence｜>",
    ),
    "glm": Form(
        template=GLM,
        tokens=("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|endoftext|>"),
        markup=(*_CALL, *_THINK, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        ends=("<|user|>", "<|endoftext|>", "<|observation|>"),
    ),
    "gpt-oss": Form(
        template=GPT_OSS,
        tokens=("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|return|>", "<|call|>", "<|endoftext|>"),
        ends=("<|return|>", "<|endoftext|>", "<|call|>"),
    ),
}


def template_rendering(folder: Path, form: Form, **settings: object) -> Rendering:
    """A rendering by the form's template over a model folder that is made in `folder`."""
    folder.mkdir(exist_ok=True)
    tokenizer = _pieces() if form.pieces else _bytes()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in form.tokens])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in form.markup])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": form.ends[0], "bos_token": form.bos, "chat_template": form.template}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    ends = [tokenizer.token_to_id(text) for text in form.ends]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 65536}))
    return open_rendering(folder, "model", ProxyConfig(renderer="default", **settings))  # type: ignore[arg-type]


def _bytes() -> Tokenizer:
    plain = json.loads(make_tokenizer(512).backend_tokenizer.to_str())
    plain["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(plain))


def _pieces() -> Tokenizer:
    """Words with a mark for the space before them, and single bytes for the rest."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<unk>", *(f"<0x{n:02X}>" for n in range(256))], show_progress=False
    )
    tokenizer.train_from_iterator(["What is it? It is three. Thanks, add one and two, please.\n"] * 20, trainer)
    return tokenizer
