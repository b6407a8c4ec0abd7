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
_AMQP = "service_bus/rules/amqp/test_"
AMQP = f"common/test_pinned.py {_AMQP}size.py {_AMQP}encodings.py {_AMQP}types.py {_AMQP}properties.py"
NAMED = {
    "service_bus/rules/amqp_messages": f"service_bus/rules/test_amqp_messages.py {AMQP}",
    "service_bus/rules/amqp/sections": f"{_AMQP}sections.py {AMQP}",
    "service_bus/rules/amqp/size": AMQP,
    "service_bus/rules/amqp/types": AMQP,
    "common/family": "common/test_pinned.py",
    "common/arguments": "common/test_arguments.py common/test_pinned.py service_bus/test_arguments.py",
    "common/durations": f"{_AMQP}properties.py service_bus/rules/test_entity_settings.py queue_storage/test_rules.py",
    "common/errors": "common/test_errors.py service_bus/http/test_http_requests.py service_bus/test_broker.py",
    "common/explanations": "queue_storage/test_rules.py rabbitmq/rules/test_explaining.py service_bus/test_explain.py",
    "service_bus/rules/limits": f"common/test_pinned.py {OF_ENTITIES} queue_storage/test_rules.py service_bus/test_broker.py",
    "common/typed": f"common/test_typed.py {_AMQP}properties.py rabbitmq/rules/test_table.py",
    "common/lock_tokens": "common/test_types.py service_bus/test_broker.py",
    "service_bus/rules/values": f"common/test_types.py {OF_ENTITIES} service_bus/test_broker.py",
    "common/types": f"common/test_types.py common/test_pinned.py {_AMQP}properties.py {OF_ENTITIES} service_bus/test_broker.py",
    "service_bus/rules/amqp/properties": (
        f"common/test_pinned.py {_AMQP}properties.py common/test_typed.py service_bus/rules/test_sql_language.py"
    ),
    "queue_storage/rules/errors": f"common/test_pinned.py {STORAGE}",
    "service_bus/rules/display_state": "common/test_display_state.py service_bus/test_explain.py service_bus/test_next_change.py",
    "service_bus/rules/entity_settings": OF_ENTITIES,
    "service_bus/rules/explaining": "service_bus/rules/test_explaining.py service_bus/test_explain.py",
    "service_bus/rules/forwarding": "service_bus/rules/test_forwarding.py service_bus/test_forwarding.py",
    "service_bus/rules/messages": f"service_bus/rules/test_service_bus.py {_AMQP}types.py service_bus/test_broker.py",
    "service_bus/rules/sas": "service_bus/rules/test_sas.py common/test_pinned.py",
    "service_bus/rules/sessions": "service_bus/rules/test_sessions.py service_bus/test_sessions.py",
    "service_bus/rules/transactions": "common/test_pinned.py service_bus/test_transactions.py",
    "rabbitmq/rules/display_state": "rabbitmq/rules/test_explaining.py",
    "rabbitmq/rules/erlang": "rabbitmq/rules/test_errors.py rabbitmq/rules",
    "rabbitmq/rules/errors": "rabbitmq/rules rabbitmq/test_topology.py",
    "rabbitmq/rules/expiration": "rabbitmq/rules/test_messages.py",
}

# Changes that no caller can notice: (module, the line, the change) and why.
EQUIVALENT = {
    (
        "queue_storage/rules/names",
        "@lru_cache(maxsize=10_000)",
        "10000 becomes 10001",
    ): "the size of a cache",
    (
        "rabbitmq/rules/patterns",
        "@lru_cache(maxsize=16384)",
        "16384 becomes 16385",
    ): "the size of a cache",
    (
        "rabbitmq/rules/patterns",
        "@lru_cache(maxsize=4096)",
        "4096 becomes 4097",
    ): "the size of a cache",
    (
        "service_bus/rules/filters/lexer",
        "number: int | float = 0",
        "0 becomes 1",
    ): "only numbers have one, and it is given",
    (
        "service_bus/rules/amqp/types",
        'wide, low, high = struct.Struct(">B" + format), -128 if signed else 0, 127 if signed else 255',
        "0 becomes 1",
    ): "every type without a sign that has a code for small numbers has one for zero",
    (
        "service_bus/rules/amqp/types",
        'head = b"\\x00" + _variable(0xA3, 0xB3)(name.encode())',
        "179 becomes 180",
    ): "these names are short",
    (
        "service_bus/rules/filters/sql",
        "_compile_once = lru_cache(maxsize=4096)(_compile)  # when one rule of a topic changes, all its rules are compiled again",
        "4096 becomes 4097",
    ): "the size of a cache",
    (
        "common/durations",
        "return timedelta.resolution if seconds > 0 else -timedelta.resolution",
        "Gt becomes GtE",
    ): "zero has been returned",
    (
        "rabbitmq/rules/deaths",
        "return min(count, 2**62) if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 1",
        "0 becomes 1",
    ): "a count of 1 is 1 either way",
    (
        "rabbitmq/rules/patterns",
        'for letter in list(dict.fromkeys(filter(str.isalnum, f"a{pattern}")))[:8]:',
        "8 becomes 9",
    ): "how many letters are tried is a choice",
    (
        "rabbitmq/rules/patterns",
        'search(letter * 200 + "!", timeout=SECONDS)',
        "200 becomes 201",
    ): "the length of the name that is tried is a choice",
    (
        "rabbitmq/rules/wire_table",
        "_require(at + 1 + size, end)",
        "1 becomes 2",
    ): "after the name, a value of at least one byte is required anyway",
    (
        "service_bus/rules/transactions",
        "for address in addresses[:1]:",
        "1 becomes 2",
    ): "those that are in a transaction have one root",
    (
        "service_bus/rules/filters/view",
        "if isinstance(value, Typed) and isinstance(value, int) and value.type in _INTEGERS:",
        "In becomes NotIn",
    ): "a shortcut: what follows returns the same number",
    (
        "service_bus/rules/filters/lexer",
        "value = value.replace(doubled, doubled[0])",
        "0 becomes 1",
    ): "both characters are the same",
    (
        "service_bus/rules/filters/operators",
        "return quotient if (left < 0) == (right < 0) else -quotient",
        "Lt becomes LtE",
    ): "zero has no sign, and the divisor is not zero",
    (
        "service_bus/rules/filters/operators",
        "return quotient if (left < 0) == (right < 0) else -quotient",
        "0 becomes 1",
    ): "the same",
    (
        "service_bus/rules/messages",
        "if len(encoded) > STRICT.all_properties:  # escapes are never shorter than UTF-8",
        "Gt becomes GtE",
    ): "the exact check follows",
    (
        "service_bus/rules/messages",
        "if (len(name) + len(text)) * _BYTES_OF_A_CHARACTER > STRICT.one_property:",
        "Gt becomes GtE",
    ): "the exact check follows",
    (
        "service_bus/rules/messages",
        "if asked < timedelta(0):",
        "Lt becomes LtE",
    ): "zero is none, and has been returned",
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


def in_functions(tree: ast.Module) -> set[int]:
    """The numbers of the places that run when a function is called, not when the module is imported."""
    bodies = [
        part
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for part in (node.body if isinstance(node.body, list) else [node.body])
    ]
    inside = {id(node) for part in bodies for node in ast.walk(part)}
    return {index for index, (node, _) in enumerate(places(tree)) if id(node) in inside}


def lines_of(path: Path, index: int) -> set[int]:
    """The lines of a place, and of the statement around it without the statements inside that."""
    tree = ast.parse(path.read_text())
    wanted, _ = list(places(tree))[index]
    around = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and any(each is wanted for each in ast.walk(node))]
    statement = min(around, key=lambda node: sum(1 for _ in ast.walk(node)))
    inner = {
        line for node in ast.walk(statement) if isinstance(node, ast.stmt) and node is not statement for line in _lines(node)
    }
    return _lines(statement) - inner | _lines(wanted)


def _lines(node: ast.AST) -> set[int]:
    return set(range(node.lineno, node.end_lineno + 1))


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
