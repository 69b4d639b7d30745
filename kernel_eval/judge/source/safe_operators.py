"""The operators that torch may run on constants and on the model's state in a replay: each checks what it reads.

Some operators of torch trust their arguments: `segment_reduce` reads at any offset that it is given, and a constant
lies at a distance from an input that a candidate can find out. Such an operator would compute with inputs that its
record does not name. Therefore only those listed here run on constants; a model can run any other one in its
constructor, whose result is part of its state. Pure data; `provenance.py` applies it. Not listed, for that reason:
indices that are not compared with sizes (`segment_reduce`, `embedding_bag`, pooling backwards, `max_unpool`, pivots of
LAPACK), results of a size that the caller states (`repeat_interleave`), files, sparse and quantised tensors.
"""

from __future__ import annotations

ELEMENTWISE = (
    "abs acos acosh add addcdiv addcmul angle asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_not "
    "bitwise_or bitwise_right_shift bitwise_xor ceil celu clamp clamp_max clamp_min complex conj_physical copysign cos "
    "cosh deg2rad digamma div elu eq erf erfc erfinv exp exp2 expm1 fill floor floor_divide fmax fmin fmod frac gcd ge "
    "gelu gt hardsigmoid hardswish hardtanh heaviside hypot i0 isfinite isinf isnan isneginf isposinf lcm ldexp le "
    "leaky_relu lerp lgamma log log10 log1p log2 log_sigmoid_forward logaddexp logaddexp2 logical_and logical_not "
    "logical_or logical_xor logit lt masked_fill maximum minimum mish mul nan_to_num ne neg nextafter polar positive "
    "pow rad2deg reciprocal relu remainder round rsqrt rsub sgn sigmoid sign signbit silu sin sinc sinh softplus sqrt "
    "square sub tan tanh threshold tril triu trunc where xlogy __and__ __or__ __xor__ __lshift__ __rshift__"
)
REDUCTIONS = (
    "_log_softmax _softmax all amax amin aminmax any argmax argmin argsort count_nonzero cummax cummin cumprod cumsum "
    "linalg_vector_norm logcumsumexp logsumexp max mean median min nansum norm prod sort std std_mean sum topk trace "
    "var var_mean"
)
_PRODUCTS = "addbmm addmm addmv addr baddbmm bmm dot ger linear matmul mm mv outer vdot"
BY_INDEX = (
    "bucketize diagonal_copy embedding index_add index_copy index_fill index_put masked_scatter masked_select nonzero "
    "scatter scatter_add take"
)
_DRAWN = "bernoulli exponential_ geometric_ log_normal_ normal_ rand_like randint_like randn_like random_ uniform_"
_NAMES = f"{ELEMENTWISE} {REDUCTIONS} {_PRODUCTS} {BY_INDEX}".split()

ON_CONSTANTS = frozenset([*_NAMES, *(f"{name}_" for name in _NAMES), *_DRAWN.split()])
