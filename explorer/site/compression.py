"""Compression: of pages when they are rendered, and of static files once, with content hashes in their names."""

from django.contrib.staticfiles.storage import StaticFilesStorage
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from servestatic.storage import CompressedManifestStaticFilesStorage


class CompressPages(GZipMiddleware):
    """GZip for complete pages. Streamed responses keep their Content-Length, which reveals incomplete downloads."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        return response if response.streaming else super().process_response(request, response)


class CollectedFiles(CompressedManifestStaticFilesStorage):
    """The files of `collectstatic`, which `manage.py up` runs; without it, the files in the source tree."""

    def url(self, name: str | None, force: bool = False) -> str:
        return super().url(name, force) if self.hashed_files else StaticFilesStorage.url(self, name)
