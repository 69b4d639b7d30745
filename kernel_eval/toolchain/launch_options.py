"""The options of a launch that reach Triton's compiler, and their values.

Triton takes more from a dictionary, such as files to link or to use in place of the IR, which a record must not name.
"""

from __future__ import annotations

from collections.abc import Mapping

_NUMBERS = {
    "num_warps": range(1, 1025),
    "num_ctas": range(1, 17),
    "num_stages": range(65),
    "maxnreg": range(1, 1025),
}
_FLAGS = frozenset({"enable_fp_fusion", "launch_cooperative_grid", "launch_pdl", "debug", "sanitize_overflow"})
NAMES = (*_NUMBERS, *sorted(_FLAGS))


def violation(options: Mapping[str, object]) -> str | None:
    """What is wrong with options, in words; None if nothing is. An option may be None: not given."""
    for name, value in options.items():
        if name not in NAMES:
            return f"{name} is no option of a launch; the options are {', '.join(NAMES)}"
        if value is None:
            continue
        if name in _FLAGS and type(value) is not bool:
            return f"{name}={value!r}; True or False is possible"
        known = _NUMBERS.get(name)
        if known is not None and (type(value) is not int or value not in known):
            return f"{name}={value!r}; a whole number from {known.start} to {known.stop - 1} is possible"
    return None
