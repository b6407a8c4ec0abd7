"""Files that are sent while they are read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse


def download(request: HttpRequest, chunks: Iterator[Any], content_type: str, name: str) -> StreamingHttpResponse:
    """An attachment of this name. Under ASGI the chunks are read one by one; otherwise Django collects all of them first."""
    content: Any = _one_by_one(chunks) if isinstance(request, ASGIRequest) else chunks
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    return StreamingHttpResponse(content, content_type=content_type, headers=headers)


async def _one_by_one(chunks: Iterator[Any]) -> AsyncIterator[Any]:
    while (chunk := await sync_to_async(lambda: next(chunks, None))()) is not None:
        yield chunk
