"""A JSON merge patch changes the members that it names, and no other character of the body."""

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer.operations.patching import merged, parsed_json, patched

ODD = '{"id":"x1","total": 12345678901234567.89,"price":10.00,"rate":0.1000000000000000055511151231257827,"sci":1E2,"k":1%s}'

_numbers = st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,4})?", fullmatch=True)
_spaces = st.sampled_from(["", " ", "\n  ", "\t"])
_texts = st.text(max_size=6).map(json.dumps)
_values = st.recursive(
    st.one_of(_numbers, _texts, st.sampled_from(["true", "false", "null"])),
    lambda inner: st.one_of(
        st.tuples(_spaces, st.lists(inner, max_size=3)).map(lambda found: f"[{found[0]}{','.join(found[1])}]"),
        st.dictionaries(_texts, inner, max_size=3).map(lambda found: f"{{{','.join(f'{k}:{v}' for k, v in found.items())}}}"),
    ),
    max_leaves=6,
)
_members = st.dictionaries(st.text(max_size=4), st.tuples(_spaces, _spaces, _values), max_size=5)
_plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)  # fmt: skip


def repaired(text, patch):
    return patched(text.encode(), {"merge_patch": patch}).decode()


def exact(text):
    """The value of JSON with its numbers as they are written."""
    return json.loads(text, parse_int=str, parse_float=str)


@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        (ODD % ',"currency":"EURO"', {"currency": "EUR"}, ODD % ',"currency":"EUR"'),
        ('{"n": 1E400, "a": 1}', {"a": 2}, '{"n": 1E400, "a": 2}'),
        ('{"n": %s, "a": 1}' % ("9" * 5_000), {"a": 2}, '{"n": %s, "a": 2}' % ("9" * 5_000)),
        ('{"total": 1, "currency": "DM"}', {"total": None}, '{"currency": "DM"}'),
        ('{"total": 1, "currency": "DM"}', {"currency": None}, '{"total": 1}'),
        ('{"total": 1}', {"total": None}, "{}"),
        ('{"total": 1}', {"absent": None}, '{"total": 1}'),
        ("{}", {"a": 1}, '{"a": 1}'),
        ('{\n  "b": {"c": 1e2, "d": 2}\n}\n', {"b": {"d": 3}, "e": 4}, '{\n  "b": {"c": 1e2, "d": 3},\n  "e": 4\n}\n'),
        ('{"a": [1.0]}', {"a": {"b": {"c": None, "d": [1]}}}, '{"a": {"b": {"d": [1]}}}'),
        ('{"caf\\u00e9": "\\u00e9", "a": 1}', {"a": 2}, '{"caf\\u00e9": "\\u00e9", "a": 2}'),
        ('{"caf\\u00e9": 1}', {"café": 2}, '{"caf\\u00e9": 2}'),
    ],
)  # fmt: skip
def test_a_merge_patch_changes_only_the_members_it_names(before, patch, after):
    assert repaired(before, patch) == after


def test_a_body_keeps_its_encoding():
    for encoding in ("utf-8-sig", "utf-16", "utf-16-le"):
        assert patched('{"a": 1.0, "é": 1}'.encode(encoding), {"merge_patch": {"é": 2}}).decode(encoding) == '{"a": 1.0, "é": 2}'


@given(_members, st.data())
def test_a_patch_of_one_member_keeps_the_text_of_all_others(members, data):
    body = f"{{{','.join(f'{before}{json.dumps(name)}:{after}{value}' for name, (before, after, value) in members.items())}}}"
    name = data.draw(st.sampled_from(sorted(members)) | st.text(max_size=4)) if members else "a"
    change = data.draw(_plain)
    after = repaired(body, {name: change})
    actual, wanted = exact(after), exact(body)
    assert json.loads(after) == merged(json.loads(body), {name: change})
    assert {k: v for k, v in actual.items() if k != name} == {k: v for k, v in wanted.items() if k != name}
    for key, (_, space, value) in members.items():
        if key != name:
            assert f"{json.dumps(key)}:{space}{value}" in after


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (ODD % ',"k":2', 'its body has the key "k" twice'),
        ('{"a": {"b": 1, "b": 1}}', 'its body has the key "b" twice'),
        ('{"a": NaN}', "its body is not JSON"),
        ('{"a": 1}}', "its body is not JSON"),
        ("[1]", "its body is not a JSON object"),
        ("[" * 100_000, "its body is not JSON"),
    ],
)
def test_an_ambiguous_body_is_refused_with_the_reason(body, problem):
    with pytest.raises(ValueError) as refused:
        repaired(body, {"currency": "EUR"})
    assert str(refused.value) == problem


@pytest.mark.parametrize("text", ["12.50", "0.1", "1E2", "-0.0", "0.30000000000000004", "5e-324", "9" * 1_000])
def test_a_number_of_a_patch_keeps_its_value(text):
    stored = json.loads(json.dumps(parsed_json(f'{{"a": {text}}}')))["a"]
    assert Decimal(repr(stored)) == Decimal(text)


@pytest.mark.parametrize(
    "text", ["1e999", "-1e99999999999999999999", "1e-999", "1e-99999999999999999999", "0.10000000000000000001"]
)
def test_a_number_that_would_be_stored_with_another_value_is_refused(text):
    with pytest.raises(ValueError, match="number can"):
        parsed_json(f'{{"a": {text}}}')
