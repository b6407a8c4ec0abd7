"""What goes over the line small: pages compressed as they are made, files compressed once, under names that change with them."""

from django.contrib.staticfiles.storage import StaticFilesStorage
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.middleware.gzip import GZipMiddleware
from servestatic.storage import CompressedManifestStaticFilesStorage


class CompressPages(GZipMiddleware):
    """Django's, for whole pages. What is streamed keeps its length, by which a download that ended short is noticed."""

    def process_response(self, request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
        return response if response.streaming else super().process_response(request, response)


class CollectedFiles(CompressedManifestStaticFilesStorage):
    """Files that `collectstatic` gathered, as `manage.py up` has them; where nobody ran it, those in the source."""

    def url(self, name: str | None, force: bool = False) -> str:
        return super().url(name, force) if self.hashed_files else StaticFilesStorage.url(self, name)
