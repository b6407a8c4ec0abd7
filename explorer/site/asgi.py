"""What the web server runs: pages by Django, the Service Bus REST API beside them, the live feed over WebSockets."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")
django_application = get_asgi_application()  # loads the apps: what follows may import models

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from django.conf import settings  # noqa: E402

from broker_core.service_bus import http as service_bus_http  # noqa: E402
from explorer.live.routing import websocket_urlpatterns  # noqa: E402

from .bodies import bounded_bodies  # noqa: E402

pages = bounded_bodies(django_application)


def under_prefix(app, prefix):
    """Serve under `prefix` ("/tools/vitrine" or ""), whether or not the proxy strips it."""

    async def wrapped(scope, receive, send):
        if prefix and scope["type"] in ("http", "websocket"):
            path = scope["path"] if scope["path"].startswith(prefix + "/") else prefix + scope["path"]
            scope = {**scope, "path": path, "root_path": prefix}
        await app(scope, receive, send)

    return wrapped


async def http(scope, receive, send):
    """The REST API under /servicebus/, which needs the header names as they came, and Django for the rest."""
    app = service_bus_http.application if service_bus_http.is_mounted(scope) else pages
    await app(scope, receive, send)


application = under_prefix(
    ProtocolTypeRouter(
        {
            "http": http,
            "websocket": AuthMiddlewareStack(URLRouter(websocket_urlpatterns)),
            "lifespan": service_bus_http.application,  # closes the broker's connections at the end
        }
    ),
    settings.PATH_PREFIX,
)
