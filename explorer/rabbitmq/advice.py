"""What a person can do about a refusal, beside RabbitMQ's own sentence, which names only what is wrong."""

from __future__ import annotations

import re

from broker_core.common.errors import BrokerError

_ADVICE = (
    (r"contains reserved prefix 'amq\.", "Names that start with amq. are reserved. Choose another name."),
    (r"operation not permitted on the default exchange",
     "The default exchange is permanently bound to every queue by its name. Bind to another exchange."),
    (r"deletion of system exchange", "Predeclared exchanges cannot be deleted. Remove its bindings instead."),
    (r"inequivalent arg '(x-[^']+)'",
     "Arguments cannot be changed after a queue is declared. Set the value with a policy, or delete the queue "
     "and declare it again."),
    (r"inequivalent arg", "It exists with other properties. Use the same properties, choose another name, or delete it first."),
    (r"unknown exchange type", "Choose direct, fanout, topic or headers."),
    (r"cannot publish to internal exchange", "Publish to an exchange that is bound to it."),
    (r"no exchange '", "Check the name and its case, or declare the exchange first."),
    (r"no queue '", "Check the name and its case, or declare it first. It may have expired or been deleted with its connection."),
    (r"in use$|in exclusive use", "Remove its bindings or cancel its consumers first."),
    (r"not empty$", "Purge the queue first, or delete it with its messages."),
    (r"cannot obtain exclusive access",
     "Exclusive queues can only be used by the connection that declared them. Other connections can publish to them."),
    (r"routing_key_but_no_dlx_defined", "Set a dead-letter exchange as well, or clear the routing key."),
    (r"of queue type rabbit_\w+_queue", "Queues of this type do not support the argument. Remove it or choose another type."),
    (r"expected integer|unacceptable_type",
     "Enter a whole number without quotes. Times can have a unit, such as 30 s, 5 min or 2 days."),
    (r"value_negative|is not a valid (maximum|message|delivery)", "Enter a whole number of 0 or more."),
    (r"value_zero|is not a valid queue expiry", "Enter a whole number of 1 or more: a queue cannot expire immediately."),
    (r"value_too_large|max_value_exceeded", "Enter a smaller number: at most ten years in milliseconds, or 255 for a priority."),
    (r"invalid expiration", "Enter milliseconds, such as 60000, or a time such as 10 s or 5 min."),
    (r"are not recognised policy settings",
     "Remove these keys. Operator policies can only set time-to-live, expiry, length and delivery limits."),
    (r"no policy provided", "Enter at least one value: a policy without values has no effect."),
    (r"should be regular expression", "Correct the pattern; ^orders\\. matches names that start with orders."),
    (r"priority should be a number", "Enter a number such as 0 or 10; the highest priority wins."),
    (r"invalid property 'non-durable'|invalid property 'exclusive|invalid property 'auto-delete'",
     "Quorum queues are always durable and cannot be exclusive or auto-delete. Choose classic or clear the option."),
    (r"Invalid x-match", "Set x-match to the string all, any, all-with-x or any-with-x."),
    (r"not implemented|NOT_IMPLEMENTED", "This broker does not support it. Choose classic or quorum."),
)  # fmt: skip
_COMPILED = [(re.compile(pattern), advice) for pattern, advice in _ADVICE]


def advice(error: BrokerError | None) -> str:
    """What to do, in a sentence or two; nothing where the refusal says it itself."""
    text = str(error or "")
    return next((said for pattern, said in _COMPILED if pattern.search(text)), "")
