"""What the comparison with a real server (`make test-rabbitmq`) needs of both sides."""

import pika

from tests.differential.brokers import NAMES


def test_properties_have_the_names_of_the_client_library():
    assert {*NAMES, "headers"} == vars(pika.BasicProperties()).keys()
