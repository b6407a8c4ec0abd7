"""Files and modules that comments, docstrings and documents name exist."""

import ast
import io
import re
import subprocess
import tokenize
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDERS = (".", "broker_core", "explorer", "tests", "docs", "examples", "templates", "templates/explorer", "static/explorer")
BASES = [ROOT / folder for folder in FOLDERS]
FILE = re.compile(r"(?<![\w./*<>{}-])[\w][\w./-]*\.(?:py|sql|md|html|js|css|toml)(?![\w/(*-])")
MODULE = re.compile(r"(?<![\w./])(?:broker_core|explorer|bench|tests)(?:\.[a-z_]\w*)+")
COMMENTS = {".sql": r"--[^\n]*", ".html": r"\{#.*?#\}", ".js": r"//[^\n]*|/\*.*?\*/", ".css": r"/\*.*?\*/", ".md": r".*"}


def _tracked() -> list[Path]:
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    kinds = (".py", ".sql", ".html", ".js", ".css", ".md")
    return [
        ROOT / name
        for name in names
        if name.endswith(kinds) and "CHANGELOG" not in name and "/vendor/" not in name and not name.endswith(".min.js")
    ]


PATHS = [str(path.relative_to(ROOT)) for path in _tracked()]
OUTSIDE = {"Node.js", "celery.py", "actions.js", "page.html", "docs/x.md"}  # a product, a user's and Django's files, and examples


def _prose(path: Path) -> str:
    """The comments and docstrings of a file; all of a document."""
    text = path.read_text()
    if path.suffix != ".py":
        return "\n".join(re.findall(COMMENTS[path.suffix], text, re.DOTALL))
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, nodes)]
    return "\n".join(comments + docstrings)


def _file_exists(name: str, path: Path) -> bool:
    """Whether it is the path of a file from here or from a base, or the end of the path of just one file."""
    is_here = any((base / name).exists() for base in [*BASES, *path.parents] if base.is_relative_to(ROOT))
    return is_here or sum(f"/{other}".endswith(f"/{name}") for other in PATHS) == 1


def _module_exists(dotted: str) -> bool:
    """Whether it is a module, or what follows a module is a name in it."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:count])
        file = place.with_suffix(".py") if place.with_suffix(".py").exists() else place / "__init__.py"
        if file.exists():
            return count == len(parts) or re.search(rf"\b{parts[count]}\b", file.read_text()) is not None
        if place.is_dir() and count == len(parts):
            return True
    return False


def missing(path: Path) -> list[str]:
    prose = _prose(path)
    files = [name for name in FILE.findall(prose) if name not in OUTSIDE and not _file_exists(name, path)]
    return files + [dotted for dotted in MODULE.findall(prose) if not _module_exists(dotted) and not _file_exists(dotted, path)]


def test_references_in_comments_exist():
    stale = {str(path.relative_to(ROOT)): missing(path) for path in _tracked()}
    assert {path: names for path, names in stale.items() if names} == {}


def test_a_reference_to_a_missing_object_is_found():
    """The test of the test."""
    here = ROOT / "tests" / "test_references.py"
    assert not _file_exists("explorer/live/none.py", here) and _file_exists("explorer/live/feed.py", here)
    assert not _module_exists("explorer.frames.none") and _module_exists("explorer.frames.shell")
    assert not _module_exists("broker_core.store.driver.none") and _module_exists("broker_core.store.driver.Steps")
