"""make lint: no line of SQL, Markdown, CSS or JavaScript of our own is longer than 130 columns.

Markdown excepts what it cannot break: tables, headings, code blocks, and words such as links. To fill the paragraphs of Markdown
files anew that have longer lines: `python -m tests.line_lengths --wrap docs/x.md ...`
"""

import re
import sys
import textwrap
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[1]
COLUMNS = 130
OURS = ("broker_core/**/*.sql", "*.md", "docs/**/*.md", "examples/**/*.md", "static/**/*.css", "static/**/*.js")
_UNBROKEN = re.compile(r"\s*(\||#|\[[^\]]+\]: )")  # a table's row, a heading, a link's target
_ITEM = re.compile(r"(\s*)([-*+]|\d+\.) +")
_FENCE = re.compile(r"\s*(```|~~~)")


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--wrap"]:
        for file in map(Path, arguments[1:]):
            file.write_text(wrapped(file.read_text()))
        return 0
    long_lines = [line for file in files() for line in too_long(file)]
    print(*long_lines, sep="\n", end="\n" if long_lines else "")
    return 1 if long_lines else 0


def files() -> list[Path]:
    return sorted(f for f in chain.from_iterable(map(ROOT.glob, OURS)) if "vendor" not in f.parts)


def too_long(file: Path) -> list[str]:
    lines = file.read_text().splitlines()
    free = _kept(lines) if file.suffix == ".md" else set()
    return [
        f"{file.relative_to(ROOT)}:{n + 1}: {len(line)} columns, {COLUMNS} at most"
        for n, line in enumerate(lines)
        if len(line) > COLUMNS and n not in free
    ]


def _kept(lines: list[str]) -> set[int]:
    """Lines of Markdown that stay as they are."""
    kept, in_code = set(), False
    for n, line in enumerate(lines):
        fence = bool(_FENCE.match(line))
        is_indented_code = line.startswith("    ") and (n == 0 or n - 1 in kept)
        if fence or in_code or is_indented_code or _UNBROKEN.match(line) or " " not in line.strip():
            kept.add(n)
        in_code ^= fence
    return kept


def wrapped(text: str) -> str:
    """The text with each paragraph or list item filled that has a line too long."""
    lines = text.split("\n")
    kept = _kept(lines)
    out: list[str] = []
    block: list[str] = []

    def flush() -> None:
        out.extend(_filled(block) if any(len(line) > COLUMNS for line in block) else block)
        block.clear()

    for n, line in enumerate(lines):
        if n in kept and not (block and line.strip() and " " not in line.strip() and not _FENCE.match(line)) or not line.strip():
            flush()
            out.append(line)
        else:
            if _ITEM.match(line):
                flush()
            block.append(line)
    flush()
    return "\n".join(out)


def _filled(block: list[str]) -> list[str]:
    item = _ITEM.match(block[0])
    first = item[0] if item else block[0][: len(block[0]) - len(block[0].lstrip())]
    text = " ".join([block[0][len(first) :], *(line.strip() for line in block[1:])])
    text = re.sub(r" ([-*+#|>]|\d+[.)]) ", "\0\\1 ", text)  # at the beginning of a line it would mean something else
    lines = textwrap.wrap(
        text, COLUMNS, initial_indent=first, subsequent_indent=" " * len(first), break_long_words=False, break_on_hyphens=False
    )
    return [line.replace("\0", " ") for line in lines]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
