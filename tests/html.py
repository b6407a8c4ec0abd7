"""A page's HTML with its white space as a browser shows it, so that a test does not depend on how a template is indented."""

import re
from html import unescape

_BLOCKS = (
    "article|aside|blockquote|body|br|button|caption|datalist|dd|details|dialog|div|dl|dt|fieldset|figcaption|figure|footer|form|"
    "h[1-6]|head|header|hr|html|input|legend|li|link|main|meta|nav|ol|option|p|pre|script|section|select|summary|table|tbody|td|"
    "template|textarea|tfoot|th|thead|title|tr|ul"
)
_KEPT = re.compile(r"(<(pre|textarea)\b[^>]*>)(.*?)(</\2>)", re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_BESIDE_BLOCKS = re.compile(rf" ?(</?(?:{_BLOCKS})\b[^>]*>) ?")


def body_of(response) -> str:
    """The body of a response as `as_shown` gives it."""
    return as_shown(response.content.decode())


def as_shown(html: str) -> str:
    """HTML in which runs of white space are one space, none is beside block-level tags, and entities are characters.

    The contents of `<pre>` and `<textarea>` are kept as they are.
    """
    kept: list[str] = []

    def keep(match: re.Match) -> str:
        kept.append(match[3])
        return f"{match[1]}\0{len(kept) - 1}\0{match[4]}"

    html = _KEPT.sub(keep, html)
    html = _TAG.sub(lambda tag: re.sub(r"\s+(?=/?>)", "", tag[0]), re.sub(r"\s+", " ", html))
    html = _BESIDE_BLOCKS.sub(r"\1", html)
    return unescape(re.sub(r"\0(\d+)\0", lambda number: kept[int(number[1])], html)).strip()
