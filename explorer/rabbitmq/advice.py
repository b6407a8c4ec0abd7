"""What a person can do about a refusal, beside RabbitMQ's own sentence, which names only what is wrong."""

from __future__ import annotations

import re

from broker_core.common.errors import BrokerError

_ADVICE = (
    (r"contains reserved prefix 'amq\.", "Names that begin with amq. are the broker's own. Choose another."),
    (r"operation not permitted on the default exchange",
     "The default exchange is bound to every queue by its name, for ever. Bind to another exchange."),
    (r"deletion of system exchange", "It belongs to every virtual host, and stays. Unbind what it should not reach."),
    (r"inequivalent arg '(x-[^']+)'",
     "Arguments are fixed when a queue is declared. Change the value with a policy, which applies at once; or delete the queue "
     "and declare it anew."),
    (r"inequivalent arg", "It exists with other properties. Give the same ones, choose another name, or delete it first."),
    (r"unknown exchange type", "Choose direct, fanout, topic or headers."),
    (r"cannot publish to internal exchange", "Publish to an exchange that is bound to it."),
    (r"no exchange '", "Check the name and its case, or declare the exchange first."),
    (r"no queue '", "Check the name and its case, or declare it first. It may have expired, or gone with its connection."),
    (r"in use$|in exclusive use", "Unbind it, or end its consumers, first."),
    (r"not empty$", "Purge the queue first, or delete it with its messages."),
    (r"cannot obtain exclusive access",
     "It belongs to the connection that declared it, and goes with it. Only publishing to it is open to others."),
    (r"routing_key_but_no_dlx_defined", "Give a dead-letter exchange as well, or leave the routing key empty."),
    (r"of queue type rabbit_\w+_queue", "Queues of this type do not know the argument. Leave it out, or choose the other type."),
    (r"expected integer|unacceptable_type",
     "Write a whole number, without quotes; a time may have a unit, such as 30 s, 5 min or 2 days."),
    (r"value_negative|is not a valid (maximum|message|delivery)", "Write a whole number that is not negative."),
    (r"value_zero|is not a valid queue expiry", "Write a whole number from 1 on: a queue cannot expire at once."),
    (r"value_too_large|max_value_exceeded", "Write a smaller number: at most ten years in milliseconds, 255 for a priority."),
    (r"invalid expiration", "Write milliseconds as digits, such as 60000, or a time such as 10 s or 5 min."),
    (r"are not recognised policy settings",
     "Leave these keys out. Operator policies may hold time-to-live, expiry, lengths and delivery limits only."),
    (r"no policy provided", "Give at least one value; a policy without any would do nothing."),
    (r"should be regular expression", "Mend the pattern; ^orders\\. matches names that begin with orders."),
    (r"priority should be a number", "Write a number such as 0 or 10; the highest priority wins."),
    (r"invalid property 'non-durable'|invalid property 'exclusive|invalid property 'auto-delete'",
     "Quorum queues are durable, shared and stay. Choose classic, or leave the flag."),
    (r"Invalid x-match", "x-match is all, any, all-with-x or any-with-x, as a text."),
    (r"not implemented|NOT_IMPLEMENTED", "It is not part of this broker; choose classic or quorum."),
)  # fmt: skip
_COMPILED = [(re.compile(pattern), advice) for pattern, advice in _ADVICE]


def advice(error: BrokerError | None) -> str:
    """What to do, in a sentence or two; nothing where the refusal says it itself."""
    text = str(error or "")
    return next((said for pattern, said in _COMPILED if pattern.search(text)), "")
