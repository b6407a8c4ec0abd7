"""The examples of docs/rabbitmq.md, run as they stand there, one after the other."""

import ast
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs" / "rabbitmq.md"


def test_the_examples_of_the_page_run(broker_database, capsys):
    text, world = DOCS.read_text(), {}
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 8
    for block in blocks:
        run(block, world)
    for printed in capsys.readouterr().out.splitlines():
        assert f"\n    {printed}\n" in text


def run(block, world):
    """Statement by statement; a value with a comment behind it is what the comment says."""
    lines = block.splitlines()
    for statement in ast.parse(block).body:
        source = "\n".join(lines[statement.lineno - 1 : statement.end_lineno])
        expected = re.search(r"  # (.+)$", source)
        if isinstance(statement, ast.Expr) and expected and not expected[1].startswith("this"):
            assert repr(eval(compile(ast.Expression(statement.value), "docs", "eval"), world)) == expected[1], source
        else:
            exec(compile(ast.Module([statement], []), "docs", "exec"), world)
