from tests.fixtures import account, broker_database, make_queue, namespace, queue, vhost  # noqa: F401 - fixtures
