from tests.fixtures import (  # noqa: F401 - fixtures
    account,
    broker_database,
    fresh_room_check,
    full_disk,
    make_queue,
    namespace,
    queue,
    vhost,
)
