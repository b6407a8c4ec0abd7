"""Compression: of pages when they are rendered, and of static files once, with content hashes in their names."""

from pathlib import PurePosixPath

from django.contrib.staticfiles.storage import StaticFilesStorage
from django.core.files.base import ContentFile, File
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from rcssmin import cssmin
from rjsmin import jsmin
from servestatic.storage import CompressedManifestStaticFilesStorage

_MINIFIERS = {".css": cssmin, ".js": jsmin}


class CompressPages(GZipMiddleware):
    """GZip for complete pages. Streamed responses keep their Content-Length, which reveals incomplete downloads."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        return response if response.streaming else super().process_response(request, response)


class CollectedFiles(CompressedManifestStaticFilesStorage):
    """The files of `collectstatic`, which `manage.py up` runs; without it, the files in the source tree.

    Our own style sheets and scripts are collected without comments and spaces; files of others are not changed.
    """

    def _save(self, name: str, content: File) -> str:
        path = PurePosixPath(name.replace("\\", "/"))
        minify = _MINIFIERS.get(path.suffix)
        if minify and path.parts[0] == "explorer" and "vendor" not in path.parts:
            content = ContentFile(minify(b"".join(content.chunks()).decode()).encode())
        return super()._save(name, content)

    def url(self, name: str | None, force: bool = False) -> str:
        return super().url(name, force) if self.hashed_files else StaticFilesStorage.url(self, name)
