"""Templates are loaded without their indentation, except where a browser shows it."""

import pytest
from django.template.loader import get_template

from explorer.site.template_loading import without_indentation


@pytest.mark.parametrize(
    ("source", "loaded"),
    [
        ("<ul>\n    <li>\n      one</li>\n\n</ul>\n", "<ul>\n<li>\none</li>\n</ul>\n"),
        ('<a\n  href="/"\n  class="b"\n>a  b</a>', '<a\nhref="/"\nclass="b"\n>a  b</a>'),
        (
            "<p>\n  <pre\n    class='code'>if x:\n    y\n\nz</pre>\n  </p>",
            "<p>\n<pre\n    class='code'>if x:\n    y\n\nz</pre>\n</p>",
        ),
        ("<textarea>\n  a\n</textarea>\n  <b></b>", "<textarea>\n  a\n</textarea>\n<b></b>"),
        ("<pre>a\n  b</pre>\n  <i>\n  </i><pre>\n  c</pre>", "<pre>a\n  b</pre>\n<i>\n</i><pre>\n  c</pre>"),
        ("", ""),
    ],
)
def test_indentation_goes_except_where_it_is_shown(source, loaded):
    assert without_indentation(source) == loaded


def test_our_templates_are_loaded_like_this_and_those_of_others_as_they_are():
    assert "\n " not in get_template("explorer/base.html").template.source
    assert "\n " in get_template("admin/base.html").template.source
