"""Faults in the pure rules, made by changing one operator, constant or condition of their syntax tree."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


def files() -> list[Path]:
    """The modules of all rules, as paths from the root."""
    found = [*ROOT.glob("broker_core/*/rules/**/*.py"), *ROOT.glob("broker_core/common/*.py")]
    return sorted(path.relative_to(ROOT) for path in found if path.name != "__init__.py")


def tests_of(file: Path) -> list[str]:
    """The tests that state what a module does: those of its family's rules."""
    family = file.parts[1]
    return ["tests/common"] if family == "common" else [f"tests/{family}/rules"]


def places(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Every node that can be changed, with what the change does."""
    for node in ast.walk(tree):
        match node:
            case ast.Compare(ops=[op]) if type(op) in SWAPPED:
                yield node, f"{type(op).__name__} becomes {SWAPPED[type(op)].__name__}"
            case ast.BoolOp():
                yield node, "and becomes or" if isinstance(node.op, ast.And) else "or becomes and"
            case ast.UnaryOp(op=ast.Not()):
                yield node, "not is left out"
            case ast.Return(value=ast.Constant(value=bool())):
                yield node, "the opposite is returned"
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                yield node, f"{value} becomes {value + 1}"


def mutated(path: Path, index: int) -> ast.Module:
    """The syntax tree of a module with its change number `index` made."""
    tree = ast.parse(path.read_text())
    node, _ = list(places(tree))[index]
    match node:
        case ast.Compare(ops=[op]):
            node.ops = [SWAPPED[type(op)]()]
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.UnaryOp():
            node.op, node.operand = ast.Not(), ast.UnaryOp(op=ast.Not(), operand=node.operand)
        case ast.Return(value=ast.Constant()):
            node.value.value = not node.value.value
        case ast.Constant():
            node.value += 1
    return ast.fix_missing_locations(tree)
