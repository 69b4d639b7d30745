"""What a call of a task shows of its operators: which work value by value, what they join, divide and add, and ask."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from weir.kernel_eval.tasks.watches.ties import OF_ANY
from weir.kernel_eval.tasks.watches.variances import VARIANCES

_MOST = 1e5  # of the numbers that are noted, since kernels may have bounds of their own beyond
# work value by value, or make constants, though torch does not tag them so
_ALSO = frozenset(
    {
        *("hardswish", "hardswish_", "prelu", "_prelu_kernel", "log_sigmoid_forward", "threshold_", "where"),
        *("masked_fill", "masked_fill_", "clone", "copy_", "_to_copy", "lift_fresh", "detach", "alias", "fill_"),
        *("zero_", "full", "full_like", "ones", "ones_like", "zeros", "zeros_like", "scalar_tensor"),
        *("new_full", "new_zeros", "new_ones"),
    }
)
_EXTREMES = frozenset(
    {
        *("max", "min", "amax", "amin", "aminmax", "argmax", "argmin", "logsumexp", "any", "all"),
        *("max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool3d"),
    }
)
_EXISTENCE = frozenset({"any", "all"})
_PIECES = frozenset({"select", "slice", "unbind", "split", "split_with_sizes"})
_MOST_PIECES = 8  # of tensors; where there are more, the task goes along a dimension step by step
_DIVIDE = frozenset({"div", "div_"})
_BOUND = frozenset({"sqrt", "rsqrt", "log", "reciprocal", "clamp", "clamp_min", "maximum"})
_NORMALIZE = frozenset({"native_batch_norm", "_native_batch_norm_legit"})
_CHOOSE = frozenset({"max", "min", "argmax", "argmin", "topk", "sort", "argsort"})
_GATES = {"sigmoid": 1, "sigmoid_": 1, "tanh": 1, "tanh_": 1, "mkldnn_rnn_layer": 1 << 10}  # by operator
_QUOTIENTS = _DIVIDE | {"reciprocal", "rsqrt", "sqrt", "log", "log2", "sign", "sgn", "atan2", "addcdiv", "addcdiv_"}
_AT_PLACES = frozenset(
    """index index_add index_add_ index_put index_put_ _index_put_impl_ index_reduce index_reduce_ index_select gather
    scatter scatter_ scatter_add scatter_add_ scatter_reduce scatter_reduce_ take bincount nonzero cumsum eq
    """.split()  # noqa: SIM905  # read as a text
)  # take integers, and do something where they say
_OF_GROUPS = frozenset({"scatter_reduce", "index_reduce", "segment_reduce"})
_ADD = frozenset(
    {
        *("add", "add_", "sub", "sub_", "rsub", "clamp", "clamp_", "clamp_min", "clamp_min_", "lt", "le", "gt", "ge"),
        *("native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit"),
        *("_native_batch_norm_legit_no_training", "_fused_rms_norm"),
    }
)
_LEAST_ADDED, _MOST_ADDED = 1e-16, 1e-2
_STORES = frozenset({"index_copy", "index_copy_", "scatter", "scatter_", "put", "put_"})
_IGNORING = frozenset({"nll_loss_forward", "nll_loss2d_forward"})
_IGNORED_AT = 4  # of the label that is ignored among the arguments
_MATCH = frozenset({"eq", "ne", "isin"})
_TURN = frozenset({"where", "abs", "maximum", "minimum", "topk", "sort", "masked_fill"}) | _EXTREMES
_ASK = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "relu", "clamp_max", "minimum", "_local_scalar_dense"}) | _BOUND
# Formulas of these pass through one, so that small results are off by a rounding of it: `2 * sigmoid(2 * x) - 1` for a
# tangent, `log(1 + exp(x))` for a softplus, `exp(x) - 1` in an elu, `x * (1 + erf(…)) / 2` for a gelu.
THROUGH_ONE = frozenset(
    "tanh expm1 log1p softplus log_sigmoid_forward mish logaddexp elu gelu sinh asinh atanh".split()  # noqa: SIM905
)


class PointwiseWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While the mode is active: whether all operators work value by value, how many there are, and their numbers."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else the first operator imports torch._dynamo, which takes seconds

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.is_pointwise = True
        self._num_pieces = 0
        self.goes_by_steps = False  # it takes pieces of tensors, one after the other
        self.num_operators = 0  # but for views, copies, and constants
        self.numbers: set[float] = set()
        self.has_extreme_of_all = False  # an operator gives the largest or the least of all values
        self.num_joined = 0  # the most values of which an operator gives the largest or the least
        self.divides_by_one = False  # by a value that may be made of all, or takes a root or bounds it
        self.is_quotient = False  # an operator divides, or turns at zero
        self.takes_places = False  # an operator takes integers that say where something lies
        self.takes_any_of_equal = False  # values, where torch does not say which
        self.joins_groups = False  # an operator gives the largest, the least or the product of what meets at a place
        self.makes_places = False  # which follow from floats: the place of a largest value
        self.takes_labels = False  # it takes the value of a row that integers say
        self.asked: set[int] = set()  # which the task asks its integers for, and labels that it leaves out
        self.matches_integers = False  # it is asked which integers are equal to others
        self.stores = False  # at places, of which two may be the same
        self.num_gates = 0  # sigmoids and tangents: of some steps of a recurrence, if they are many
        self.asks_one = False  # an operator compares or bounds one number, asks for any, or hands one to Python
        self.turns = False  # an operator chooses, compares, bounds or ends somewhere, so that some values differ
        self.has_formulas = False  # of an operator, by which some results are off: through one, or of a variance
        self.pairs_rows = False  # an operator gives a value for each pair of rows
        self.added: set[float] = set()  # small numbers that are added, the least, or compared
        self.adds_to_weights = False  # some of them to what is made of parameters alone
        self._of_weights = WeakTensorKeyDictionary()  # which tensors are

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        is_view = any(made.alias_info is not None and not made.alias_info.is_write for made in func._schema.returns)
        self.num_operators += not is_view and func.__name__.partition(".")[0] not in _ALSO
        if torch.Tag.pointwise in func.tags:
            given = [*args, *(kwargs or {}).values()]
            numbers = (float(value) for value in given if type(value) in (int, float))
            self.numbers |= {number for number in numbers if 0 < abs(number) <= _MOST}
        elif not is_view and func.__name__.partition(".")[0] not in _ALSO:
            self.is_pointwise = False
        result = func(*args, **(kwargs or {}))
        name = func.__name__.partition(".")[0]
        self.takes_any_of_equal |= func in OF_ANY
        self._note_added(name, args, result)
        if name in _PIECES:
            self._num_pieces += sum(made.numel() < args[0].numel() for made in tree_leaves(result))
            self.goes_by_steps = self._num_pieces > _MOST_PIECES
            self.is_pointwise &= not self.goes_by_steps
        self._note_whole(name, args, result)
        self._note_places(name, args, result)
        return result

    def _note_added(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        given = [value for value in tree_leaves(args) if isinstance(value, torch.Tensor)]
        is_of_weights = bool(given) and all(
            isinstance(value, torch.nn.Parameter) or value in self._of_weights for value in given
        )
        made = [value for value in tree_leaves(result) if isinstance(value, torch.Tensor)]
        self._of_weights.update(dict.fromkeys(made if is_of_weights else (), True))
        small = {value for value in args if type(value) is float and _LEAST_ADDED < value <= _MOST_ADDED}
        if name in _ADD:
            self.added |= small
            self.adds_to_weights |= is_of_weights and bool(small)

    def _note_whole(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        made = result if isinstance(result, tuple | list) else (result,)
        first, second = (_is_one(args[at]) if len(args) > at else False for at in (0, 1))
        if name in _EXTREMES and not first:
            self.has_extreme_of_all |= any(map(_is_one, made))
            self.num_joined = max(self.num_joined, args[0].numel() // max(1, made[0].numel()))
        self.asks_one |= name in _ASK if first else name in _EXISTENCE and any(map(_is_one, made))
        self.num_gates += _GATES.get(name, 0)
        self.turns |= name in _ASK or name in _TURN
        self.has_formulas |= name.removesuffix("_") in THROUGH_ONE or name in VARIANCES
        self.pairs_rows |= any(map(_is_of_pairs, made))
        self.is_quotient |= name in _QUOTIENTS
        divides = (name in _DIVIDE and second) or (name in _NORMALIZE and any(map(_is_one, made)))
        if divides or (name in _BOUND and first):
            self.divides_by_one = True

    def _note_places(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        given = [value for value in tree_leaves(args) if isinstance(value, torch.Tensor)]
        self.stores |= name in _STORES
        if name in _MATCH and is_whole(args[0]) and type(args[1]) is int:
            self.asked.add(args[1])
        elif name in _IGNORING:
            self.asked.add(args[_IGNORED_AT])
        self.takes_labels |= name in _IGNORING or (name == "gather" and args[0].is_floating_point())
        self.matches_integers |= name in _MATCH and sum(map(is_whole, given)) > 1
        self.joins_groups |= name.removesuffix("_") in _OF_GROUPS
        self.takes_places |= name in _AT_PLACES and any(map(is_whole, given))
        if name in _CHOOSE and any(value.is_floating_point() for value in given):
            self.makes_places |= any(map(is_whole, tree_leaves(result)))


def is_whole(value: Any) -> bool:
    """Whether a value is a tensor of integers."""
    if not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex():
        return False
    return value.dtype is not torch.bool


def _is_of_pairs(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.dim() < 2:
        return False
    return value.shape[-1] == value.shape[-2] > 1


def _is_one(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() == 1
