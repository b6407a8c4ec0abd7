"""The web server of `manage.py up` and the container: `python -m explorer.site.web`, with any option of uvicorn."""

import sys

import uvicorn

OPTIONS = (
    "--http=broker_core.wire.bounded_http:BoundedHttp",
    "--ws-max-size=1048576",  # pages send only the name of the page
    "--no-access-log",
    "--no-server-header",
)


def main(arguments: list[str]) -> None:
    uvicorn.main(["explorer.site.asgi:application", *OPTIONS, *arguments], prog_name="explorer.site.web")


if __name__ == "__main__":
    main(sys.argv[1:])
