"""Adds NVIDIA's device library to Triton's interpreter, through functions of numpy or torch, with float32 accuracy.

The interpreter does not implement `create_extern_elementwise`. Its symbol (`__nv_tanhf`) names the function, after
Triton has checked the types. A function that is not in the table raises `NotImplementedError`, which is judged
unsupported. `fast_` functions, which are less exact on a device, are computed exactly here; the compiler compiles the
real ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from triton.language.extra import libdevice as generic
from triton.language.extra.cuda import libdevice
from triton.runtime import interpreter


def _through_torch(function: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    def call(*arrays: Any) -> Any:
        return function(*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays)).numpy()

    return call


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in ("tanh", "sinh", "cosh", "sin", "cos", "tan", "exp", "exp2", "expm1")},
    **{name: getattr(np, name) for name in ("log", "log2", "log10", "log1p", "sqrt", "cbrt", "floor", "ceil", "trunc")},
    **{name: getattr(np, name) for name in ("rint", "hypot", "fmod", "copysign", "nextafter", "ldexp")},
    **{name: _through_torch(getattr(torch.special, name)) for name in ("erf", "erfc", "erfinv", "erfcx")},
    **{name: _through_torch(getattr(torch, name)) for name in ("lgamma", "asin", "acos", "atan", "atan2")},
    **{name: _through_torch(getattr(torch, name)) for name in ("asinh", "acosh", "atanh")},
    "fabs": np.abs,
    "nearbyint": np.rint,
    "pow": np.power,
    "powi": np.power,
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "round": lambda x: np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x),
    "remainder": lambda x, y: x - y * np.rint(x / y),
    "fma": lambda x, y, z: x * y + z,
    "fdim": lambda x, y: np.maximum(x - y, 0),
    "fmax": np.fmax,
    "fmin": np.fmin,
    "sinpi": lambda x: np.sin(np.pi * x).astype(x.dtype),
    "cospi": lambda x: np.cos(np.pi * x).astype(x.dtype),
    "normcdf": _through_torch(torch.special.ndtr),
    "normcdfinv": _through_torch(torch.special.ndtri),
    "j0": _through_torch(torch.special.bessel_j0),
    "j1": _through_torch(torch.special.bessel_j1),
    "cyl_bessel_i0": _through_torch(torch.special.i0),
    "cyl_bessel_i1": _through_torch(torch.special.i1),
    "saturate": lambda x: np.clip(x, 0, 1),
    "isnan": np.isnan,
    "isinf": np.isinf,
    "finite": np.isfinite,
    "isfinited": np.isfinite,
    "signbit": np.signbit,
    "abs": np.abs,
    "llabs": np.abs,
    **{f"f{name}_rn": function for name, function in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply))},
    **{f"d{name}_rn": function for name, function in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply))},
    **{f"{kind}div_rn": np.divide for kind in "fd"},
    **{f"{kind}sqrt_rn": np.sqrt for kind in "fd"},
    **{f"{kind}rcp_rn": lambda x: 1 / x for kind in "fd"},
    "fma_rn": lambda x, y, z: x * y + z,
    **{f"fast_{name}": getattr(np, name) for name in ("sin", "cos", "tan", "exp", "log", "log2", "log10", "tanh")},
    "fast_pow": np.power,
    "fast_fdivide": np.divide,
    "fast_exp10": lambda x: np.power(x.dtype.type(10), x),
}


def install() -> None:
    """Patch the interpreter of this process. Call it once."""
    interpreter.InterpreterBuilder.create_extern_elementwise = create_extern_elementwise
    for name, function in inspect.getmembers(libdevice, inspect.isfunction):
        if not interpreter.tl.core.is_builtin(function):
            continue
        interpreted = _with_semantic(function)
        setattr(libdevice, name, interpreted)
        if hasattr(generic, name):
            setattr(generic, name, interpreted)


def create_extern_elementwise(
    self: Any, library: str, path: str, symbol: str, arguments: list[Any], result_type: Any, is_pure: bool
) -> Any:
    """Call the function of a symbol. Raises NotImplementedError for an unknown one."""
    function = find(symbol)
    if function is None:
        raise NotImplementedError(f"libdevice's {symbol}")
    with np.errstate(all="ignore"):
        result = function(*(argument.data for argument in arguments))
    kind = result_type.scalar
    return interpreter.TensorHandle(np.asarray(result).astype(interpreter._get_np_dtype(kind)), kind)


def find(symbol: str) -> Callable[..., Any] | None:
    """The function of a symbol, which ends in f for float32; None for an unknown one."""
    name = symbol.removeprefix("__nv_")
    return _FUNCTIONS.get(name) or _FUNCTIONS.get(name.removesuffix("f"))


def _with_semantic(function: Callable[..., Any]) -> Callable[..., Any]:
    def interpreted(*arguments: Any, _semantic: Any = None, **named: Any) -> Any:
        return function(*arguments, _semantic=interpreter.interpreter_semantic, **named)

    interpreted.__triton_builtin__ = True  # type: ignore[attr-defined]
    return interpreted
