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


# The tests that state what a module does: the next ones first, the rest of its family after them. Where nothing is named, those
# are the module's namesake in the tests of its family's rules, and then all of these.
FILTERS = "service_bus/rules/test_sql_language.py service_bus/rules/test_correlation.py service_bus/test_topics.py"
STORAGE = "queue_storage/test_rules.py queue_storage/test_queues.py queue_storage/test_messages.py queue_storage/test_poison.py"
OF_ENTITIES = "service_bus/rules/test_entity_settings.py service_bus/test_entities.py service_bus/test_topics_config.py"
NAMED = {
    "common/arguments": "common/test_pinned.py service_bus/test_arguments.py queue_storage/test_messages.py",
    "common/durations": "common/test_values.py service_bus/rules/test_entity_settings.py queue_storage/test_rules.py",
    "common/errors": "service_bus/http/test_http_requests.py service_bus/test_broker.py",
    "common/explanations": "queue_storage/test_rules.py rabbitmq/rules/test_explaining.py service_bus/test_explain.py",
    "common/limits": f"common/test_pinned.py {OF_ENTITIES} queue_storage/test_rules.py service_bus/test_broker.py",
    "common/typed": "common/test_typed.py common/test_values.py rabbitmq/rules/test_table.py",
    "common/types": f"common/test_pinned.py common/test_values.py {OF_ENTITIES} service_bus/test_broker.py {STORAGE}",
    "common/values": "common/test_pinned.py common/test_values.py common/test_typed.py service_bus/rules/test_sql_language.py",
    "service_bus/rules/display_state": "common/test_display_state.py service_bus/test_explain.py service_bus/test_next_change.py",
    "service_bus/rules/entity_settings": OF_ENTITIES,
    "service_bus/rules/explaining": "service_bus/test_explain.py common/test_display_state.py",
    "service_bus/rules/forwarding": "service_bus/test_topics_config.py service_bus/test_forwarding.py",
    "service_bus/rules/messages": "service_bus/rules/test_service_bus.py service_bus/test_broker.py service_bus/test_topics.py",
    "service_bus/rules/sessions": "service_bus/rules/test_sessions.py service_bus/test_sessions.py",
    "service_bus/rules/transactions": "service_bus/test_transactions.py",
    "rabbitmq/rules/display_state": "rabbitmq/rules/test_explaining.py",
    "rabbitmq/rules/erlang": "rabbitmq/rules/test_errors.py rabbitmq/rules",
    "rabbitmq/rules/errors": "rabbitmq/rules rabbitmq/test_topology.py",
    "rabbitmq/rules/expiration": "rabbitmq/rules/test_messages.py",
}

# Changes that no caller can notice: (module, the line, the change) and why.
EQUIVALENT = {
    (
        "rabbitmq/rules/table",
        "value = value if exponent <= 0 else Decimal(int(value))",
        "LtE becomes Lt",
    ): "a whole number is itself",
    (
        "service_bus/rules/messages",
        "_BYTES_OF_A_CHARACTER = 4  # at most, in UTF-8",
        "4 becomes 5",
    ): "it only spares the exact count",
    (
        "service_bus/rules/matching",
        "if known is None or hit.order < known.hit.order:",
        "Lt becomes LtE",
    ): "two rules of a subscription never have the same order",
}


def is_equivalent(file: Path, node: ast.AST, what: str) -> bool:
    line = (ROOT / file).read_text().splitlines()[getattr(node, "lineno", 1) - 1].strip()
    return (str(file.with_suffix("").relative_to("broker_core")), line, what) in EQUIVALENT


def tests_of(file: Path) -> tuple[str, ...]:
    module = str(file.with_suffix("").relative_to("broker_core"))
    family = file.parts[1]
    if named := NAMED.get(module):
        tests = named.split()
    elif "filters" in file.parts:
        tests = FILTERS.split()
    elif family == "queue_storage":
        tests = STORAGE.split()
    else:
        namesake = f"{family}/rules/test_{file.stem}.py"
        tests = [namesake] * (ROOT / "tests" / namesake).exists() + [f"{family}/rules"]
    return tuple(f"tests/{each}" for each in tests)


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
