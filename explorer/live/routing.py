"""The WebSocket's URL. `reverse("live", urlconf="explorer.live.routing")` returns it with the site's prefix."""

from django.urls import path

from .consumers import LiveConsumer

websocket_urlpatterns = [path("live/", LiveConsumer.as_asgi(), name="live")]
urlpatterns = websocket_urlpatterns  # for `reverse`
