"""Extracts a candidate's kernels from its source, and checks that they are written in Triton's language.

For the recompiler of finalists, which imports what `extract` returns; nothing that judges or is timed does. A kernel
counts only if it keeps to the language that the compiler knows: its own names, those of `triton.language` and `math`,
other kernels, and constants; and the attributes that tensors and dtypes have there. Invariant: importing and launching
that source runs no code of the candidate but kernels that passed this check, which is made of the text as it is written
down, too. Pure; no torch, no triton.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from weir.kernel_eval.judge.source.constant_folding import CONSTEXPR, Number, number_of

LANGUAGE = "triton.language"
_LIBDEVICE = tuple(f"{LANGUAGE}.extra.{where}libdevice" for where in ("", "cuda.", "hip."))
_FOLDERS = (f"{LANGUAGE}.extra", f"{LANGUAGE}.extra.cuda", f"{LANGUAGE}.extra.hip")
_MODULES = frozenset({"triton", "math", LANGUAGE, f"{LANGUAGE}.math", *_LIBDEVICE, *_FOLDERS})
_FROM_TRITON = frozenset({"cdiv", "next_power_of_2"})
_HIDDEN = frozenset(
    {
        *("core", "semantic", "standard", "random", "target_info", "extra", "wraps", "List", "T", "builtin"),
        *("to_tensor", "str_to_ty"),  # str_to_ty evaluates a part of its text
    }
)
# what the front end knows without a name of the module; a kernel's own variable of such a name may not be bound yet
_OF_THE_FRONT_END = frozenset({"getattr", "hasattr", "isinstance"})
# no isinstance: constants have other types in the compiler than in the interpreter, so that a kernel could do both
_BUILTINS = frozenset({"range", "min", "max", "abs", "float", "int", "bool", "len", "print", "tuple", "list"})
_ON_VALUES = (
    "T abs advance argmax argmin associative_scan atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or "
    "atomic_xchg atomic_xor broadcast_to cast cdiv ceil cos cumprod cumsum erf exp exp2 expand_dims flip floor "
    "gather histogram item log log2 logical_and logical_or max min permute ravel reduce reduce_or reshape rsqrt "
    "sigmoid sin softmax sort split sqrt sqrt_rn store sum to trans view xor_sum load scatter block_shape shape "
    "dtype type scalar element_ty value numel primitive_bitwidth int_bitwidth fp_mantissa_width is_ptr is_block "
    "is_floating is_int is_bool is_fp16 is_fp32 is_fp64 is_bf16 is_int1 is_int8 is_int16 is_int32 is_int64 strides "
)
VALUE_ATTRIBUTES = frozenset(_ON_VALUES.split())
_STATEMENTS = (
    *(ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.Expr, ast.Return),
    *(ast.Pass, ast.Break, ast.Continue, ast.Assert),
)
_EXPRESSIONS = (
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Attribute, ast.Name, ast.Constant),
    *(ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.keyword, ast.JoinedStr, ast.FormattedValue, ast.expr_context),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.ListComp, ast.comprehension, ast.Starred),
)


class NotTriton(Exception):
    """A kernel uses something that is not part of Triton's language."""


class NotFound(Exception):
    """A launched kernel is not a function in the candidate's source."""


class KernelSource:
    """The module-level names of a candidate that its kernels can use."""

    def __init__(self, tree: ast.Module) -> None:
        self._functions: dict[str, list[ast.FunctionDef]] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                self._functions.setdefault(node.name, []).append(node)
        self._kernels = {name for name, found in self._functions.items() if any(map(_is_decorated, found))}
        self._imports: dict[str, tuple[str, ast.stmt]] = {}  # name → dotted path, import statement
        self._constants: dict[str, ast.expr] = {}
        self._numbers: dict[str, Number | None] = {}
        self._aliases: dict[str, str] = {}  # k = triton.jit(f)
        for node in _module_level(tree.body):
            self._note(node)

    def extract(self, launched: Iterable[tuple[str, int]]) -> str:
        """The source of a module with these kernels (name, line) and everything that they use.

        Raises `NotTriton` if a kernel breaks the language, and `NotFound` if the source does not define it.
        """
        functions: dict[str, ast.FunctionDef] = {}
        used: set[str] = set()
        waiting = [(name, line) for name, line in dict.fromkeys(launched)]
        while waiting:
            name, line = waiting.pop()
            name = self._aliases.get(name, name)
            if name in functions:
                continue
            functions[name] = function = self._find(name, line)
            names = _Check(self).names_used_by(function)
            used |= names
            waiting += [(n, 0) for n in sorted(names) if n in self._functions or n in self._aliases]
        text = self._module(functions, used)
        _check_written(text)
        return text

    def stands_for(self, name: str) -> str | None:
        """The dotted path of an imported name that kernels may use; None for any other name."""
        imported = self._imports.get(name)
        return imported[0] if imported else None

    def path_of(self, value: ast.expr) -> str:
        """The dotted path of an imported name, or of what it has by attributes; empty for anything else."""
        names, root = _chain(value)
        path = self.stands_for(root.id) if isinstance(root, ast.Name) else None
        return ".".join((path, *names)) if path else ""

    def is_known(self, name: str) -> bool:
        """Whether a name is a kernel or a constant of the module."""
        return name in self._kernels or name in self._aliases or name in self._constants

    def number_of(self, value: ast.expr) -> Number | None:
        """The value of an expression at module level, if it is a number within the bounds; else None."""
        return number_of(value, self._numbers.get, self.stands_for)

    def _note(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in _MODULES:
                    single = ast.Import(names=[alias])
                    root = alias.asname or alias.name.split(".")[0]
                    self._imports[root] = (alias.name if alias.asname else root, single)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                path = f"{node.module}.{alias.name}"
                if path in _MODULES or _is_public(path):
                    self._imports[alias.asname or alias.name] = (
                        path,
                        ast.ImportFrom(module=node.module, names=[alias], level=0),
                    )
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    self._note_value(target.id, node.value)

    def _note_value(self, name: str, value: ast.expr) -> None:
        if isinstance(value, ast.Call) and _last_name(value.func) == "jit" and len(value.args) == 1:
            if isinstance(value.args[0], ast.Name):
                self._aliases[name] = value.args[0].id
        elif _is_constant(value, self):
            self._numbers[name] = self.number_of(value)
            self._constants[name] = value

    def _find(self, name: str, line: int) -> ast.FunctionDef:
        functions = self._functions.get(name)
        if not functions:
            raise NotFound(f"the kernel {name} is no function in the source")
        around = [
            f for f in functions if min([f.lineno, *(d.lineno for d in f.decorator_list)]) <= line <= _last_line(f)
        ]
        return (around or functions)[-1]

    def _module(self, functions: dict[str, ast.FunctionDef], used: set[str]) -> str:
        lines = ["import math", "import triton", f"import {LANGUAGE} as tl"]
        lines += [ast.unparse(statement) for name, (_, statement) in self._imports.items() if name in used]
        self._check_numbers()
        constants = self._constants_behind(used)
        lines += [f"{name} = {ast.unparse(value)}" for name, value in self._constants.items() if name in constants]
        lines += [_bare(function) for function in functions.values()]
        lines += [f"{name} = {target}" for name, target in self._aliases.items() if target in functions]
        return "\n".join(lines) + "\n"

    def _check_numbers(self) -> None:
        """Evaluate each number again with the module's final values, since a later assignment may change one."""
        numbers: dict[str, Number | None] = {}
        for name, value in self._constants.items():
            numbers[name] = number_of(value, numbers.get, self.stands_for)
            if self._numbers[name] is not None and numbers[name] is None:
                raise NotTriton(
                    f"the constant {name} is no number of a sensible size once its parts are assigned again"
                )

    def _constants_behind(self, used: set[str]) -> set[str]:
        behind = {name for name in used if name in self._constants}
        while True:
            names = {n.id for c in behind for n in ast.walk(self._constants[c]) if isinstance(n, ast.Name)}
            more = {name for name in names if name in self._constants} - behind
            if not more:
                return behind
            behind |= more


class _Check(ast.NodeVisitor):
    """Checks one kernel, and collects the names of the module that it uses."""

    def __init__(self, source: KernelSource) -> None:
        self._source = source
        self._own: set[str] = set()
        self._used: set[str] = set()

    def names_used_by(self, function: ast.FunctionDef) -> set[str]:
        arguments = function.args
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
            raise NotTriton(f"the kernel {function.name} has variadic or keyword-only parameters")
        self._own = {argument.arg for argument in (*arguments.posonlyargs, *arguments.args)}
        self._own |= {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for name in sorted(self._own & _OF_THE_FRONT_END):
            raise NotTriton(f"the kernel {function.name} has a variable {name}: give it another name")
        for default in arguments.defaults:
            self._check_default(function.name, default)
        for statement in function.body:
            self.visit(statement)
        return self._used

    def _check_default(self, kernel: str, default: ast.expr) -> None:
        """Python evaluates it, in the module."""
        if not _is_constant(default, self._source):
            raise NotTriton(f"a default of the kernel {kernel} (line {default.lineno}) is no constant")
        names = {node.id for node in ast.walk(default) if isinstance(node, ast.Name)}
        self._used |= {name for name in names if self._source.stands_for(name) or self._source.is_known(name)}

    def visit(self, node: ast.AST) -> None:
        if not isinstance(node, _STATEMENTS + _EXPRESSIONS):
            raise NotTriton(f"{type(node).__name__} (line {getattr(node, 'lineno', '?')}) is not Triton's language")
        super().visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        if node.value is not None:
            self.visit(node.value)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id.startswith("__"):
            raise NotTriton(f"{node.id} (line {node.lineno}) is not Triton's language")
        if node.id in self._own or (node.id in _BUILTINS and self._source.stands_for(node.id) is None):
            return
        if self._source.stands_for(node.id) is None and not self._source.is_known(node.id):
            what = f"a kernel uses {node.id} (line {node.lineno}), which is neither Triton's nor a kernel"
            raise NotTriton(f"{what}: pass its value as a tl.constexpr")
        self._used.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        names, root = _chain(node)
        path = self._source.stands_for(root.id) if isinstance(root, ast.Name) and root.id not in self._own else None
        if not isinstance(node.ctx, ast.Load):
            raise NotTriton(f"a kernel changes .{node.attr} (line {node.lineno})")
        if path is not None:
            while path in _MODULES and names:
                path = f"{path}.{names.pop(0)}"
                if path not in _MODULES and not _is_public(path):
                    raise NotTriton(f"a kernel uses {path} (line {node.lineno})")
            assert isinstance(root, ast.Name)
            self._used.add(root.id)
        else:
            self.visit(root)
        for name in names:
            if name not in VALUE_ATTRIBUTES:
                raise NotTriton(f"a kernel uses .{name} (line {node.lineno}), which tensors do not have in Triton")

    def visit_FormattedValue(self, node: ast.FormattedValue) -> None:
        if node.format_spec is not None:
            raise NotTriton(f"a kernel formats a value (line {node.lineno}): leave what follows the colon out")
        self.visit(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            raise NotTriton(f"a kernel assigns to an element (line {node.lineno})")
        self.generic_visit(node)


def _module_level(body: list[ast.stmt]) -> Iterable[ast.stmt]:
    for node in body:
        if isinstance(node, ast.Try):
            yield from _module_level(node.body)
        elif isinstance(node, ast.If):
            yield from _module_level([*node.orelse, *node.body])
        else:
            yield node


def _is_public(path: str) -> bool:
    module, _, name = path.rpartition(".")
    if name.startswith("_") or name in _HIDDEN:
        return False
    return name in _FROM_TRITON if module == "triton" else module in _MODULES and module not in _FOLDERS


def _is_constant(value: ast.expr, source: KernelSource) -> bool:
    """A literal, arithmetic of numbers, a dtype, `tl.constexpr(literal)`, `float("inf")`, other constants."""
    if isinstance(value, ast.Constant) or source.number_of(value) is not None:
        return True
    if isinstance(value, ast.UnaryOp):
        return _is_constant(value.operand, source)
    if isinstance(value, ast.Name):
        return source.is_known(value.id) or _is_public(source.path_of(value))
    if isinstance(value, ast.Tuple | ast.List):
        return all(_is_constant(element, source) for element in value.elts)
    if isinstance(value, ast.Call):
        of_python = isinstance(value.func, ast.Name) and value.func.id in ("float", "int")
        plain = (of_python or source.path_of(value.func) == CONSTEXPR) and not value.keywords
        return plain and all(_is_constant(argument, source) for argument in value.args)
    return isinstance(value, ast.Attribute) and _is_public(source.path_of(value))


def _check_written(text: str) -> None:
    """Check a module as it will be imported, in case that writing changed what something means. Raises `NotTriton`."""
    tree = ast.parse(text)
    written = KernelSource(tree)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            _Check(written).names_used_by(node)
        elif isinstance(node, ast.Assign) and not _is_constant(node.value, written):
            raise NotTriton(f"{ast.unparse(node.targets[0])} is no constant once it is written down")


def _chain(node: ast.expr) -> tuple[list[str], ast.expr]:
    names: list[str] = []
    root = node
    while isinstance(root, ast.Attribute):
        names.insert(0, root.attr)
        root = root.value
    return names, root


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_decorated(function: ast.FunctionDef) -> bool:
    calls = (d.func if isinstance(d, ast.Call) else d for d in function.decorator_list)
    return any(_last_name(call) == "jit" for call in calls)


def _last_line(function: ast.FunctionDef) -> int:
    return function.end_lineno or function.lineno


def _bare(function: ast.FunctionDef) -> str:
    """The source of a function as a kernel without other decorators, and without annotations but `tl.constexpr`."""
    arguments = [
        ast.arg(arg=a.arg, annotation=ast.parse("tl.constexpr", mode="eval").body if _is_constexpr(a) else None)
        for a in (*function.args.posonlyargs, *function.args.args)
    ]
    return "@triton.jit\n" + ast.unparse(
        ast.fix_missing_locations(
            ast.FunctionDef(
                name=function.name,
                args=ast.arguments(
                    posonlyargs=[], args=arguments, kwonlyargs=[], kw_defaults=[], defaults=function.args.defaults
                ),
                body=function.body,
                decorator_list=[],
                returns=None,
            )
        )
    )


def _is_constexpr(argument: ast.arg) -> bool:
    return argument.annotation is not None and "constexpr" in ast.unparse(argument.annotation)
