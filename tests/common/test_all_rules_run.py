"""Production calls every rule: what only tests call belongs beside them (tests/service_bus/specification.py)."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCTION = [path for package in ("broker_core", "explorer") for path in (ROOT / package).rglob("*.py")]
FOLDERS = ("common", "rules")
# What each family provides under this name, callers choosing the module by the family; and what Python itself reads.
BY_FAMILY = {"why_not", "next_change_at", "__all__"}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def references(path: Path, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What a file refers to of other modules: (module, name)."""
    package = module_of(path).split(".")[: None if path.name == "__init__.py" else -1]
    aliases = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, node.module] if node.module else above)
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{base}.{alias.name}"
                yield base, alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases:
            yield aliases[node.value.id], node.attr


def defined(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    for node in tree.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name, node
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name, node


def words_of(lines):
    return Counter(re.findall(r"\w+", "\n".join(lines)))


def test_every_function_of_the_rules_is_used_in_production():
    trees = {path: ast.parse(path.read_text()) for path in PRODUCTION}
    used = {reference for path, tree in trees.items() for reference in references(path, tree)}
    unused = []
    for path, tree in trees.items():
        if set(FOLDERS).isdisjoint(path.relative_to(ROOT).parts):
            continue
        lines = path.read_text().splitlines()
        words = words_of(lines)
        for name, node in defined(tree):
            is_used_beside = words[name] > words_of(lines[node.lineno - 1 : node.end_lineno])[name]
            if not is_used_beside and name not in BY_FAMILY and (module_of(path), name) not in used:
                unused.append(f"{path.relative_to(ROOT)}: {name}")
    assert not unused
