"""Loading of templates without the indentation of their source, which is a tenth of a compressed page."""

import re

from django.template import Origin
from django.template.loaders import filesystem

_VERBATIM = re.compile(r"(<pre\b.*?</pre>|<textarea\b.*?</textarea>)", re.DOTALL)  # whitespace is shown in these
_INDENTATION = re.compile(r"\s*\n\s*")


def without_indentation(source: str) -> str:
    """The HTML source with one line break for all whitespace around it, except within `pre` and `textarea`."""
    parts = _VERBATIM.split(source)
    parts[::2] = [_INDENTATION.sub("\n", part) for part in parts[::2]]
    return "".join(parts)


class Loader(filesystem.Loader):
    """Templates of our own, from the folders in DIRS."""

    def get_contents(self, origin: Origin) -> str:
        source = super().get_contents(origin)
        return without_indentation(source) if origin.name.endswith(".html") else source
