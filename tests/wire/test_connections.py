"""The connections of a listener, without sockets."""

import pytest

from broker_core.wire.connections import Connections, Limits, TooManyConnections


@pytest.mark.parametrize(
    ("first", "second", "other"),
    [
        ("192.0.2.7", "192.0.2.7", "192.0.2.8"),
        ("::ffff:192.0.2.7", "192.0.2.7", "::ffff:192.0.2.8"),
        ("2001:db8:1:2::1", "2001:db8:1:2:3:4:5:6", "2001:db8:1:3::1"),
    ],
)
def test_connections_are_counted_by_address_and_for_ipv6_by_network(first, second, other):
    """One client has many addresses of IPv6."""
    connections = Connections(Limits(most_per_address=1))
    one = connections.admit(first)
    with pytest.raises(TooManyConnections):
        connections.admit(second)
    connections.admit(other)
    one.closed()
    one.closed()
    connections.admit(second)
    assert len(connections) == 2
