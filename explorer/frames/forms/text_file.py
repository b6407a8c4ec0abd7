"""A form with a text file, which a preview carries on as a hidden field."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms


class TextFileForm(forms.Form):
    """cleaned_data["content"]: the text of the file, else of the field `text`. do: preview, or import.

    largest: bytes at most. too_large: what to do instead, as a sentence.
    """

    largest: ClassVar[int]
    too_large: ClassVar[str]

    file = forms.FileField(required=False, allow_empty_file=True, label="File")
    text = forms.CharField(required=False, strip=False, widget=forms.HiddenInput)
    do = forms.ChoiceField(choices=[("preview", "preview"), ("import", "import")])

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        upload = cleaned.get("file")
        content = upload.read(self.largest + 1) if upload else cleaned.get("text", "").encode()
        if not content:
            self.add_error("file", "Choose a file.")
        elif len(content) > self.largest:
            self.add_error("file", f"The file is larger than {self.largest // 2**20} MB. {self.too_large}")
        else:
            try:
                cleaned["content"] = content.decode()
            except UnicodeDecodeError:
                self.add_error("file", "The file is not text in UTF-8.")
        return cleaned
