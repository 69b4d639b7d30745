"""NVIDIA's device library by its symbols (`__nv_tanhf`), through functions of torch with their type's accuracy.

The `fast_` functions are compositions of approximate instructions, as the CUDA C++ Programming Guide's table of
intrinsic functions and the PTX ISA (`sin.approx`, `lg2.approx`, `ex2.approx`) say: each step is rounded to float32 and
numbers below its normal ones are 0, so that angles of thousands, large exponents and negative bases fail as they do on
a device. An unknown symbol raises Unsupported.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from weir.kernel_eval.ir.errors import Malformed, Unsupported
from weir.kernel_eval.ir.grid.floats import UNARY
from weir.kernel_eval.ir.grid.frame import Frame, Handler
from weir.kernel_eval.ir.grid.integers import mulhiui
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
    "ldexp": torch.ldexp,
    "umulhi": lambda x, y: mulhiui(x, y, 32),
}
_TERNARY: dict[str, Function] = {"fma": _fma, "fma_rn": _fma, "fmaf_rn": _fma}
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
