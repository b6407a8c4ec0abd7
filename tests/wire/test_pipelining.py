"""Several requests in one piece, of which the last one is none: earlier ones are answered first."""

import pytest

ASKED = b"GET /nobody/orders/messages HTTP/1.1\r\nHost: localhost\r\n\r\n"  # answered by the database


def everything(connection) -> bytes:
    received = b""
    while part := connection.recv(65536):
        received += part
    return received


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    "refused",
    [
        b"|",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 300_000,
        b"POST /nobody/orders/messages HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["no request", "no host", "too large", "a bad chunk"],
)
def test_a_refusal_does_not_overtake_the_answers_to_earlier_requests(transactional_db, listener, refused, count):
    with listener.connect() as connection:
        connection.sendall(ASKED * count + refused)
        received = everything(connection)
    _, *answers = received.split(b"HTTP/1.1 ")
    refusal = answers.pop() if len(answers) > count else b""
    assert len(answers) == count
    assert all(answer.startswith(b"404 ") and b"<Code>ResourceNotFound</Code>" in answer for answer in answers)
    assert refusal[:3] in (b"", b"400", b"431")  # only if all answers were complete before it was read


def test_a_request_with_a_bad_chunk_is_refused_when_its_turn_has_come(transactional_db, listener):
    with listener.connect() as connection:
        connection.sendall(b"POST /nobody/orders HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
        assert everything(connection).startswith(b"HTTP/1.1 400 ")
