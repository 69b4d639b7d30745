"""NVIDIA's device library by its symbols (`__nv_tanhf`), through functions of torch with their type's accuracy.

The `fast_` functions are compositions of approximate instructions, as the CUDA C++ Programming Guide's table of
intrinsic functions and the PTX ISA (`sin.approx`, `lg2.approx`, `ex2.approx`) say: each step is rounded to float32 and
numbers below its normal ones are 0, so that angles of thousands, large exponents and negative bases fail as they do on
a device. Integers are held signed, whatever they stand for. An unknown symbol raises Unsupported.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from weir.kernel_eval.ir.errors import Malformed, Unsupported
from weir.kernel_eval.ir.grid.casts import of_unsigned, saturated
from weir.kernel_eval.ir.grid.floats import UNARY
from weir.kernel_eval.ir.grid.frame import Frame, Handler
from weir.kernel_eval.ir.grid.integers import mulhisi, mulhiui, unsigned
from weir.kernel_eval.ir.grid.values import dtype_of
from weir.kernel_eval.ir.module import Operation

Function = Callable[..., torch.Tensor]


def _numpy(function: Callable[..., Any]) -> Function:
    def call(*values: torch.Tensor) -> torch.Tensor:
        with np.errstate(all="ignore"):
            return torch.from_numpy(np.asarray(function(*(value.numpy() for value in values))))

    return call


def _fma(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return (x.double() * y.double() + z.double()).to(x.dtype)


def _pi(function: Function) -> Function:
    return lambda x: function((x.double() % 2) * math.pi).to(x.dtype)


def _power(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.pow(x, y.to(x.dtype))


_LEAST_NORMAL = torch.finfo(torch.float32).tiny
_LARGEST_DIVISOR = 2.0**126  # of __fdividef: larger ones give 0


def _flushed(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x.abs() < _LEAST_NORMAL, torch.zeros_like(x), x)


def _of_turns(function: Function) -> Function:
    """A function of an angle, which the instruction first makes a number of turns."""

    def call(x: torch.Tensor) -> torch.Tensor:
        turns = (_flushed(x) * (0.5 / math.pi)).double()
        return function((turns - turns.round()) * (2 * math.pi)).to(x.dtype)

    return call


def _log2(x: torch.Tensor) -> torch.Tensor:
    return torch.log2(_flushed(x))


def _exp2(x: torch.Tensor) -> torch.Tensor:
    return _flushed(torch.exp2(x))


def _fast_divide(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return _flushed(torch.where(y.abs() > _LARGEST_DIVISOR, x * 0.0, x / y))


_BYTE = 8
_BITS_OF_BYTES = torch.tensor([number.bit_count() for number in range(1 << _BYTE)], dtype=torch.int32)
_ROUNDINGS: dict[str, Function] = {"rn": torch.round, "rd": torch.floor, "ru": torch.ceil, "rz": torch.trunc}
_LOW_24 = (1 << 24) - 1


def _bits(x: torch.Tensor) -> int:
    return x.element_size() * _BYTE


def _popc(x: torch.Tensor) -> torch.Tensor:
    """How many bits are set, (...) int32."""
    flat = x.contiguous().view(-1)
    in_bytes = flat.view(torch.uint8).view(flat.numel(), x.element_size()).long()
    return _BITS_OF_BYTES[in_bytes].sum(-1, dtype=torch.int32).view(x.shape)


def _clz(x: torch.Tensor) -> torch.Tensor:
    """How many bits above the highest one that is set are not, (...) int32."""
    for shift in (1, 2, 4, 8, 16, 32):
        if shift < _bits(x):
            x = x | ((x >> shift) & ((1 << (_bits(x) - shift)) - 1))  # all below the highest are set
    return _bits(x) - _popc(x)


def _ffs(x: torch.Tensor) -> torch.Tensor:
    """The number of the lowest bit that is set, from 1 on; 0 if none is."""
    return torch.where(x == 0, 0, _popc((x & -x) - 1) + 1)


def _brev(x: torch.Tensor) -> torch.Tensor:
    reversed_bits = torch.zeros_like(x)
    for bit in range(_bits(x)):
        reversed_bits = (reversed_bits << 1) | ((x >> bit) & 1)
    return reversed_bits


def _mul24(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The low half of the product of what the lowest 24 bits hold, signed."""
    one, two = (((value.long() & _LOW_24) ^ (1 << 23)) - (1 << 23) for value in (x, y))
    return (one * two).to(x.dtype)


def _umul24(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((x.long() & _LOW_24) * (y.long() & _LOW_24)).to(x.dtype)


def _wide(function: Function) -> Function:
    """A function of signed numbers of 32 bits that may overflow on the way."""
    return lambda *values: function(*(value.long() for value in values)).to(values[0].dtype)


def _of_unsigned(function: Function) -> Function:
    return lambda *values: function(*(unsigned(value, 32) for value in values)).to(values[0].dtype)


def _to_integer(x: torch.Tensor, *, bits: int, is_signed: bool, rounding: Function) -> torch.Tensor:
    return saturated(rounding(x.double()), bits, is_signed=is_signed).to(torch.int32 if bits == 32 else torch.int64)


def _round_away(x: torch.Tensor) -> torch.Tensor:
    """To the nearest whole number, halves away from zero."""
    whole = torch.trunc(x)
    return whole + torch.sign(x) * ((x - whole).abs() >= 0.5)


def _views(dtype: torch.dtype) -> Function:
    return lambda x: x.contiguous().view(dtype)


_TO_LONG = functools.partial(_to_integer, bits=64, is_signed=True)
_OF_INTEGERS: dict[str, Function] = {
    **dict.fromkeys(("popc", "popcll"), _popc),
    **dict.fromkeys(("clz", "clzll"), _clz),
    **dict.fromkeys(("ffs", "ffsll"), _ffs),
    **dict.fromkeys(("brev", "brevll"), _brev),
    **{
        f"{source}2{kind}_{name}": functools.partial(_to_integer, bits=bits, is_signed=is_signed, rounding=rounding)
        for source in ("float", "double")
        for kind, bits, is_signed in (("int", 32, True), ("uint", 32, False), ("ll", 64, True), ("ull", 64, False))
        for name, rounding in _ROUNDINGS.items()
    },
    **{
        f"{kind}2{target}_rn": functools.partial(torch.Tensor.to, dtype=dtype)
        for kind in ("int", "ll")
        for target, dtype in (("float", torch.float32), ("double", torch.float64))
    },
    **{
        f"{kind}2{target}_rn": functools.partial(of_unsigned, bits=bits, dtype=dtype)
        for kind, bits in (("uint", 32), ("ull", 64))
        for target, dtype in (("float", torch.float32), ("double", torch.float64))
    },
    "llrint": functools.partial(_TO_LONG, rounding=torch.round),
    "llround": functools.partial(_TO_LONG, rounding=_round_away),
    **dict.fromkeys(("float_as_int", "float_as_uint"), _views(torch.int32)),
    **dict.fromkeys(("int_as_float", "uint_as_float"), _views(torch.float32)),
    "double_as_longlong": _views(torch.int64),
    "longlong_as_double": _views(torch.float64),
}
_OF_TWO_INTEGERS: dict[str, Function] = {
    "mulhi": functools.partial(mulhisi, bits=32),
    "umulhi": functools.partial(mulhiui, bits=32),
    "mul64hi": functools.partial(mulhisi, bits=64),
    "umul64hi": functools.partial(mulhiui, bits=64),
    "mul24": _mul24,
    "umul24": _umul24,
    "hadd": _wide(lambda x, y: (x + y) >> 1),
    "rhadd": _wide(lambda x, y: (x + y + 1) >> 1),
    "uhadd": _of_unsigned(lambda x, y: (x + y) >> 1),
    "urhadd": _of_unsigned(lambda x, y: (x + y + 1) >> 1),
}
_OF_THREE_INTEGERS: dict[str, Function] = {
    "sad": _wide(lambda x, y, z: (x - y).abs() + z),
    "usad": _of_unsigned(lambda x, y, z: (x - y).abs() + z),
}

_fast_sin, _fast_cos = _of_turns(torch.sin), _of_turns(torch.cos)
_FAST: dict[str, Function] = {
    "fast_sin": _fast_sin,
    "fast_cos": _fast_cos,
    "fast_tan": lambda x: _fast_sin(x) / _fast_cos(x),
    "fast_exp": lambda x: _exp2(x * math.log2(math.e)),
    "fast_exp10": lambda x: _exp2(x * math.log2(10.0)),
    "fast_log": lambda x: _log2(x) * math.log(2.0),
    "fast_log2": _log2,
    "fast_log10": lambda x: _log2(x) * math.log10(2.0),
}
_UNARY: dict[str, Function] = {
    **{name.removeprefix("math."): function for name, function in UNARY.items() if name.startswith("math.")},
    **_FAST,
    **{name: getattr(torch.special, name) for name in ("erfinv", "erfcx", "i0", "i1")},
    **dict.fromkeys(("fabs", "abs", "llabs"), torch.abs),
    **dict.fromkeys(("rint", "nearbyint"), torch.round),
    **dict.fromkeys(("isnan", "isnand"), torch.isnan),
    **dict.fromkeys(("isinf", "isinfd"), torch.isinf),
    **dict.fromkeys(("finite", "isfinited", "finitef"), torch.isfinite),
    **dict.fromkeys(("signbit", "signbitd"), torch.signbit),
    **dict.fromkeys(("fsqrt_rn", "dsqrt_rn"), torch.sqrt),
    **dict.fromkeys(("frcp_rn", "drcp_rn"), torch.reciprocal),
    "lgamma": torch.lgamma,
    "tgamma": lambda x: torch.lgamma(x.double()).exp().to(x.dtype),
    "exp10": lambda x: torch.pow(10.0, x.double()).to(x.dtype),
    "rcbrt": lambda x: torch.reciprocal(UNARY["math.cbrt"](x)),
    "sinpi": _pi(torch.sin),
    "cospi": _pi(torch.cos),
    "normcdf": torch.special.ndtr,
    "normcdfinv": torch.special.ndtri,
    "j0": torch.special.bessel_j0,
    "j1": torch.special.bessel_j1,
    "y0": torch.special.bessel_y0,
    "y1": torch.special.bessel_y1,
    "cyl_bessel_i0": torch.special.i0,
    "cyl_bessel_i1": torch.special.i1,
    "saturate": lambda x: x.clamp(0, 1),
    "logb": lambda x: torch.floor(torch.log2(x.abs())),
    **_OF_INTEGERS,
}
_BINARY: dict[str, Function] = {
    **{f"{kind}{name}_rn": function for kind in "fd" for name, function in (("add", torch.add), ("sub", torch.sub))},
    **{f"{kind}{name}_rn": function for kind in "fd" for name, function in (("mul", torch.mul), ("div", torch.div))},
    "pow": _power,
    "powi": _power,
    "fast_pow": lambda x, y: _exp2(y * _log2(x)),
    "fast_fdivide": _fast_divide,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "rhypot": lambda x, y: torch.reciprocal(torch.hypot(x, y)),
    "fmod": torch.fmod,
    "copysign": torch.copysign,
    "nextafter": torch.nextafter,
    "fmax": torch.fmax,
    "fmin": torch.fmin,
    "max": torch.maximum,
    "min": torch.minimum,
    "fdim": lambda x, y: (x - y).clamp(min=0),
    "remainder": _numpy(lambda x, y: x - y * np.rint(x / y)),
    **dict.fromkeys(("ldexp", "scalbn"), torch.ldexp),
    **_OF_TWO_INTEGERS,
}
_TERNARY: dict[str, Function] = {"fma": _fma, "fma_rn": _fma, "fmaf_rn": _fma, **_OF_THREE_INTEGERS}
_BY_ARITY = {1: _UNARY, 2: _BINARY, 3: _TERNARY}


def find(symbol: str, arity: int) -> Function | None:
    """The function of a symbol, which ends in f for float32; None for an unknown one."""
    if not symbol.startswith("__nv_"):
        return None
    name = symbol.removeprefix("__nv_")
    known = _BY_ARITY.get(arity, {})
    return known.get(name) or known.get(name.removesuffix("f"))


def _extern(frame: Frame, operation: Operation) -> torch.Tensor:
    symbol = operation.attributes["symbol"]
    function = find(symbol, len(operation.operands))
    if function is None:
        raise Unsupported(f"libdevice's {symbol[:60]}")
    try:
        result = function(*frame.tensors(operation))
    except (RuntimeError, TypeError, NotImplementedError) as error:
        raise Malformed(f"libdevice's {symbol[:60]} of such types") from error
    frame.machine.counts.flops += result.numel()
    return result.to(dtype_of(frame.result_kind(operation)))


HANDLERS: dict[str, Handler] = {"tt.extern_elementwise": _extern}
