from tests.fixtures import (  # noqa: F401 - fixtures
    account,
    broker_database,
    full_disk,
    looks_anew,
    make_queue,
    namespace,
    queue,
    vhost,
)
