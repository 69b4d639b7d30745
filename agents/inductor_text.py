"""What torch.compile writes, without torch's private names (`grid`, `empty_strided_cuda`, `triton_helpers` and others).

KernelBook's Triton sources were made by the compiler of one release of torch and import what only that release had.
Here those names become public ones, or a few lines that say what they meant, so that the sources run with any torch,
and so that a model does not learn the names. Pure, text to text; what is not known stays, and is the judge's business.
"""

from __future__ import annotations

import re

_DROPPED_LINES = re.compile(
    r"""^[ \t]*(?:
        from\ torch\._inductor\.runtime\.triton_heuristics\ import\ .*
      | from\ torch\._inductor\.runtime\ import\ triton_helpers
      | from\ torch\._inductor\.runtime\.triton_helpers\ import\ .*
      | from\ torch\._inductor\.select_algorithm\ import\ extern_kernels
      | (?:from\ torch\._C\ import\ .*|import\ torch\._C\ as\ .*)get_raw_stream.*
      | (?:\w+\ =\ )?get_raw_stream\(\d+\)
      | torch\.cuda\.set_device\(\d+\)
      | (?:assert_size_stride|empty_strided_cuda|empty_strided_cpu|reinterpret_tensor|assert_alignment|alloc_from_pool)
        \ =\ torch\..*
    )\n""",
    re.MULTILINE | re.VERBOSE,
)
_RENAMED = (
    (re.compile(r"\btorch\.cuda\._DeviceGuard\((\d+)\)"), r"torch.cuda.device(\1)"),
    (re.compile(r"\bextern_kernels\."), "torch."),
    (re.compile(r"\btl_math\."), "tl."),
    (re.compile(r"\btriton_helpers\.(maximum|minimum)\b"), r"tl.\1"),
    (re.compile(r"\btriton_helpers\.max2\b"), "tl.max"),
    (re.compile(r"\btriton_helpers\.min2\b"), "tl.min"),
    (re.compile(r"\btriton_helpers\.promote_to_tensor\("), "("),
)
# By the name that a source must call to be given the lines.
_MEANINGS = {
    "grid": """\
def grid(*sizes):
    blocks = ("XBLOCK", "YBLOCK", "ZBLOCK")
    return lambda meta: tuple(triton.cdiv(size, meta.get(block, 1)) for size, block in zip(sizes, blocks))
""",
    "assert_size_stride": """\
def assert_size_stride(tensor, size, stride):
    assert tensor.size() == size and tensor.stride() == stride
""",
    "empty_strided_cuda": """\
def empty_strided_cuda(size, stride, dtype):
    return torch.empty_strided(size, stride, dtype=dtype, device="cuda")
""",
    "reinterpret_tensor": """\
def reinterpret_tensor(tensor, size, stride, offset=0):
    return torch.as_strided(tensor, size, stride, tensor.storage_offset() + offset)
""",
}
_LIBDEVICE = "from triton.language.extra import libdevice\n"
_LAST_IMPORT = re.compile(r"^(?:import|from)\ .*(?:\(\n(?:.*\n)*?\)|)\n", re.MULTILINE)


def written_out(source: str) -> str:
    """A module of the compiler's without its private names; any other module as it is."""
    text = _DROPPED_LINES.sub("", source)
    if text == source:
        return source
    for pattern, meant in _RENAMED:
        text = pattern.sub(meant, text)
    added = "".join(f"\n\n{lines}" for name, lines in _MEANINGS.items() if _is_called_not_defined(name, text))
    imported = _LIBDEVICE if re.search(r"\blibdevice\.", text) else ""
    end = max((found.end() for found in _LAST_IMPORT.finditer(text)), default=0)
    return f"{text[:end]}{imported}{added}{text[end:]}"


def _is_called_not_defined(name: str, text: str) -> bool:
    return re.search(rf"\b{name}\(", text) is not None and f"def {name}(" not in text
