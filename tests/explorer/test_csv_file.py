"""Tables as CSV files: a name never becomes a formula, and nobody else writes such files."""

import csv
import io
import re
from pathlib import Path

import pytest

from explorer.frames.csv_file import csv_file

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("=1+1|x/orders", "'=1+1|x/orders"),
        ("+1", "'+1"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("  =1", "'  =1"),
        ("＝1", "'＝1"),
        ("demo/a=1", "demo/a=1"),
        ("", ""),
        (-5, "-5"),
        (-1.5, "-1.5"),
    ],
)
def test_a_text_never_becomes_a_formula(value, written):
    content = csv_file("t.csv", [[value, "end"]]).content.decode()
    assert list(csv.reader(io.StringIO(content, newline=""))) == [[written, "end"]]


def test_no_other_module_writes_csv():
    writes = re.compile(
        r"\bcsv\.(writer|DictWriter|write_csv)\b|^from (pyarrow\.)?csv import .*\b(writer|DictWriter|write_csv)\b", re.M
    )
    files = [file for package in ("broker_core", "explorer") for file in (ROOT / package).rglob("*.py")]
    found = {file.name for file in files if writes.search(file.read_text())}
    assert found - {"generation.py"} == {
        "csv_file.py"
        # explorer/analysis/generation.py writes for COPY alone, which opens no spreadsheet
    }
