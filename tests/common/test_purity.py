"""The rules take what they need as arguments: they ask neither the system nor a clock nor chance."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2] / "broker_core"
RULES = [path for folder in ("common", "*/rules") for path in ROOT.glob(f"{folder}/**/*.py")]
IMPURE_MODULES = {
    "getpass",
    "logging",
    "os",
    "pathlib",
    "random",
    "secrets",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
}
IMPURE_CALLS = {"getpid", "getuser", "now", "open", "today", "token_hex", "urandom", "utcnow", "uuid1", "uuid4"}


def impurities(source: str) -> list[str]:
    results = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            results += [alias.name for alias in node.names if alias.name.partition(".")[0] in IMPURE_MODULES]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            results += [node.module] if node.module.partition(".")[0] in IMPURE_MODULES else []
            results += [alias.name for alias in node.names if alias.name in IMPURE_CALLS]
        elif isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            results += [name] if name in IMPURE_CALLS else []
    return results


def test_the_rules_are_pure():
    assert len(RULES) > 50
    assert {str(path.relative_to(ROOT)): found for path in RULES if (found := impurities(path.read_text()))} == {}


def test_impure_code_is_found():
    assert impurities("import os") == ["os"]
    assert impurities("from uuid import UUID, uuid4") == ["uuid4"]
    assert impurities("x = datetime.now(UTC)") == ["now"]
