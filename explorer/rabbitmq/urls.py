"""URLs of the RabbitMQ pages, below rabbitmq/: the page, then the virtual host, then a name that may contain slashes.

A queue's own page and its deletion have the URLs that all families share (explorer.urls).
"""

from django.urls import path

from explorer import addresses  # noqa: F401  registers the converters

from . import connection_lines, definitions, exchanges, getting, moving, policies, publishing, queues, vhost

HOST = "<namespace:namespace>"
QUEUE = f"{HOST}/<entity:path>"
EXCHANGE = f"{HOST}/<entity:exchange>"
POLICY = f"<slug:kind>/{HOST}/<entity:name>"

urlpatterns = [
    path("new/vhost/", vhost.create, name="rabbitmq_vhost_new"),
    path(f"vhosts/{HOST}/", vhost.vhost, name="rabbitmq_vhost"),
    path(f"delete/vhost/{HOST}/", vhost.delete, name="rabbitmq_vhost_delete"),
    path(f"queues/{HOST}/", queues.queues, name="rabbitmq_queues"),
    path("new/queue/", queues.where, name="rabbitmq_queue_new_where"),
    path(f"new/queue/{HOST}/", queues.create, name="rabbitmq_queue_new"),
    path(f"move/{QUEUE}", moving.move, name="rabbitmq_move"),
    path(f"get/{QUEUE}", getting.get, name="rabbitmq_get"),
    path(f"exchanges/{HOST}/", exchanges.exchanges, name="rabbitmq_exchanges"),
    path(f"new/exchange/{HOST}/", exchanges.create, name="rabbitmq_exchange_new"),
    path(f"exchanges/{EXCHANGE}", exchanges.exchange, name="rabbitmq_exchange"),
    path(f"delete/exchange/{EXCHANGE}", exchanges.delete, name="rabbitmq_exchange_delete"),
    path(f"publish/{EXCHANGE}", publishing.publish, name="rabbitmq_publish"),
    path(f"policies/{HOST}/", policies.policies, name="rabbitmq_policies"),
    path(f"new/policy/<slug:kind>/{HOST}/", policies.create, name="rabbitmq_policy_new"),
    path(f"policies/{POLICY}", policies.change, name="rabbitmq_policy"),
    path(f"delete/policy/{POLICY}", policies.delete, name="rabbitmq_policy_delete"),
    path(f"connections/{HOST}/", connection_lines.of_vhost, name="rabbitmq_connections"),
    path(f"definitions/{HOST}/", definitions.definitions, name="rabbitmq_definitions"),
    path(f"definitions.json/{HOST}/", definitions.download, name="rabbitmq_export"),
]
