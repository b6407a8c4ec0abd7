"""The ASGI application: Django for pages, the broker's HTTP front ends, the health check, and WebSockets for the live feed."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")
django_application = get_asgi_application()  # loads the apps, so that models can be imported below

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from django.conf import settings  # noqa: E402

from broker_core.clients import recorder  # noqa: E402
from broker_core.store import aio  # noqa: E402
from explorer.live.routing import websocket_urlpatterns  # noqa: E402

from . import health  # noqa: E402
from .bodies import bounded_bodies  # noqa: E402
from .front_ends import FRONT_ENDS  # noqa: E402
from .page_limits import limited_pages  # noqa: E402

pages = bounded_bodies(limited_pages(django_application))


def under_prefix(app, prefix):
    """Serve under `prefix` ("/tools/vitrine" or ""), whether or not the proxy strips it."""

    async def wrapped(scope, receive, send):
        if prefix and scope["type"] in ("http", "websocket"):
            path = scope["path"] if scope["path"].startswith(prefix + "/") else prefix + scope["path"]
            scope = {**scope, "path": path, "root_path": prefix}
        await app(scope, receive, send)

    return wrapped


async def http(scope, receive, send):
    """Dispatch to what is mounted at this path, else to Django. Front ends get the header names as they were sent."""
    application = next((mounted.application for mounted in (*FRONT_ENDS, health) if mounted.is_mounted(scope)), pages)
    await application(scope, receive, send)


async def lifespan(scope, receive, send):
    """Record the clients of the front ends from the start until the shutdown, and close the broker's connections then."""
    while True:
        event = (await receive())["type"]
        if event == "lifespan.startup":
            recorder.start()
        elif event == "lifespan.shutdown":
            await recorder.stop()
            await aio.close()
        await send({"type": f"{event}.complete"})
        if event == "lifespan.shutdown":
            return


application = under_prefix(
    ProtocolTypeRouter(
        {
            "http": http,
            "websocket": AuthMiddlewareStack(URLRouter(websocket_urlpatterns)),
            "lifespan": lifespan,
        }
    ),
    settings.PATH_PREFIX,
)
