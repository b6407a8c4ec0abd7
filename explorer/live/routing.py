"""The WebSocket's address. `reverse("live", urlconf="explorer.live.routing")` gives it, with the site's prefix."""

from django.urls import path

from .consumers import LiveConsumer

websocket_urlpatterns = [path("live/", LiveConsumer.as_asgi(), name="live")]
urlpatterns = websocket_urlpatterns  # so that reverse finds it
