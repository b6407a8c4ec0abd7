"""Each word of the explorer in a sentence, with what Azure and RabbitMQ call it."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from .shell import page, show


@dataclass(frozen=True, slots=True)
class Word:
    """icon and hue: of its badge, for the states."""

    word: str
    meaning: str
    azure: str = ""
    rabbitmq: str = ""
    icon: str = ""
    hue: str = ""

    @property
    def anchor(self) -> str:
        return self.word.replace(" ", "-")


STATES = (
    Word(
        "active",
        "In the queue and available to receive, oldest first.",
        "active; in Queue Storage: visible",
        "ready",
        "active",
        "active",
    ),
    Word(
        "locked",
        "Received by one receiver and unavailable to others until it is settled or the lock ends.",
        "locked (peek-lock); in Queue Storage: leased",
        "unacknowledged",
        "locked",
        "locked",
    ),
    Word(
        "scheduled",
        "Waits for its scheduled time, then is enqueued with a new sequence number.",
        "scheduled; in Queue Storage: delayed",
        "delayed (with the delayed-message plugin)",
        "scheduled",
        "scheduled",
    ),
    Word(
        "deferred",
        "Put aside by a receiver; received only by sequence number.",
        "deferred",
        "no counterpart",
        "deferred",
        "deferred",
    ),
    Word(
        "expired",
        "Its time-to-live has ended, but no receive or sweep has removed it yet. It is never delivered.",
        "expired",
        "expired",
        "expired",
        "expired",
    ),
    Word(
        "dead-lettered",
        "In the dead-letter queue after too many failed deliveries, rejection by a receiver, or expiry.",
        "dead-lettered",
        "dead-lettered (through a dead-letter exchange)",
        "dead",
        "dead",
    ),
)

WORDS = (
    Word("entity", "Anything with an address: a queue, a topic or a subscription.", "entity", "queue, exchange"),
    Word("queue", "Stores messages in order until they are received.", "queue", "queue", "queue"),
    Word(
        "topic",
        "Copies each message to its subscriptions whose rules match. Stores only scheduled messages.",
        "topic",
        "exchange",
        "topic",
    ),
    Word(
        "subscription",
        "Stores its own copy of each message of its topic that matches its rules. Received from like a queue.",
        "subscription",
        "a queue bound to an exchange",
        "subscription",
    ),
    Word(
        "rule",
        "Selects the messages copied to a subscription, and optionally changes the copy. Without rules, nothing is copied.",
        "rule: filter and action",
        "binding",
        "rules",
    ),
    Word(
        "SQL filter",
        "A condition on message properties. If it cannot be evaluated, the message is dead-lettered or not copied.",
        "SqlFilter",
        "headers exchange, roughly",
    ),
    Word(
        "correlation filter", "Properties that must all be equal; faster than a SQL filter.", "CorrelationFilter", "routing key"
    ),
    Word(
        "session",
        "Messages with the same session id, received in order by the receiver that accepted the session.",
        "session",
        "single active consumer, roughly",
        "session",
    ),
    Word("session state", "Data stored with a session for its next receiver.", "session state", "no counterpart"),
    Word(
        "duplicate detection",
        "A message whose id was seen within the window is accepted and dropped.",
        "RequiresDuplicateDetection",
        "no counterpart",
    ),
    Word(
        "forwarding",
        "Messages or dead letters of one entity are moved to another automatically.",
        "ForwardTo, ForwardDeadLetteredMessagesTo",
        "dead-letter exchange, exchange-to-exchange binding",
        "forward",
    ),
    Word(
        "transfer dead-letter queue",
        "Stores messages that could not be forwarded: target deleted or disabled, or too many hops.",
        "$Transfer/$DeadLetterQueue",
        "no counterpart",
    ),
    Word(
        "namespace", "A container for entities with its own clock, tier and keys.", "namespace, storage account", "virtual host"
    ),
    Word(
        "family",
        "The broker whose rules a namespace follows: Service Bus, Queue Storage or RabbitMQ.",
    ),
    Word(
        "visibility timeout",
        "How long a message in a storage queue stays hidden after a put, get or update.",
        "visibilitytimeout",
        "no counterpart",
    ),
    Word(
        "lease",
        "The time for which a get hides a message. It ends with a delete, an update or its timeout.",
        "visibility timeout of a get",
        "unacknowledged delivery, without an end",
        "locked",
    ),
    Word(
        "pop receipt",
        "Returned by a put, get or update; required by update and delete. Only the latest is valid, even after the lease.",
        "PopReceipt",
        "delivery tag, roughly",
    ),
    Word("dequeue count", "How often a message was received. It is never reset.", "DequeueCount", "x-delivery-count, roughly"),
    Word(
        "poison queue",
        "Receives messages of a storage queue that reached the max dequeue count. Requeue moves them back.",
        "NAME-poison, by convention of Functions",
        "a queue bound to a dead-letter exchange",
    ),
    Word(
        "release",
        "Make a hidden message visible at once. The old pop receipt no longer works.",
        "no counterpart",
        "close the connection that holds it",
        "unlock",
    ),
    Word(
        "approximate count",
        "The number of messages in a storage queue, visible or not, excluding expired ones. In Vitrine it is exact.",
        "x-ms-approximate-messages-count",
        "messages",
    ),
    Word("exchange", "Routes published messages to queues according to its type and bindings.", "topic", "exchange", "topic"),
    Word(
        "unacked",
        "Delivered to a consumer but not acknowledged yet. Requeued when the consumer's connection closes.",
        "locked, leased",
        "unacknowledged",
        "locked",
    ),
    Word("routing key", "Set by the publisher; the exchange compares it with its bindings.", "subject, roughly", "routing key"),
    Word(
        "binding",
        "Routes messages from an exchange to a queue or another exchange, by routing key or headers.",
        "rule of a subscription",
        "binding",
    ),
    Word(
        "alternate exchange",
        "Receives messages that match no binding of an exchange.",
        "no counterpart",
        "alternate-exchange",
    ),
    Word(
        "expiration",
        "A message's time-to-live in milliseconds, set by its publisher. If the queue has a TTL too, the shorter one applies.",
        "TimeToLive of a message",
        "expiration",
    ),
    Word(
        "dead-letter exchange",
        "Rejected, expired and surplus messages of a queue are republished to it. Without one, they are dropped.",
        "dead-letter queue, roughly",
        "x-dead-letter-exchange (DLX)",
    ),
    Word(
        "x-death",
        "The header that records why a message was dead-lettered: for each queue and reason, count, first time and exchange.",
        "DeadLetterReason",
        "x-death",
    ),
    Word(
        "prefetch",
        "The maximum number of unacknowledged deliveries per consumer.",
        "prefetch count",
        "basic.qos prefetch",
    ),
    Word("redelivered", "Delivered before and requeued.", "DeliveryCount above 1", "redelivered"),
    Word(
        "delivery limit",
        "How often a message in a quorum queue may be returned before it is dead-lettered or dropped.",
        "MaxDeliveryCount",
        "x-delivery-limit",
    ),
    Word(
        "max length",
        "The maximum number of ready messages. The overflow setting drops the oldest message or rejects the new one.",
        "MaxSizeInMegabytes, roughly",
        "x-max-length, x-max-length-bytes, x-overflow",
    ),
    Word(
        "quorum queue",
        "A queue with a delivery limit that counts returned messages. In RabbitMQ it is also replicated.",
        "no counterpart",
        "x-queue-type: quorum",
    ),
    Word(
        "connection",
        "A client's link to the broker. When it closes, its messages are requeued and its exclusive queues deleted.",
        "AMQP connection",
        "connection",
    ),
    Word(
        "exclusive queue",
        "Usable only by the connection that declared it, and deleted with that connection.",
        "no counterpart",
        "exclusive",
    ),
    Word(
        "definitions",
        "A JSON file of exchanges, queues, bindings and policies, without messages.",
        "template, roughly",
        "definitions.json",
    ),
    Word(
        "policy",
        "Settings for all queues and exchanges whose names match. Operator policies limit what others can set.",
        "no counterpart",
        "policy, operator policy",
        "rules",
    ),
    Word(
        "tier",
        "The feature level of a namespace. Basic has queues only and a maximum time-to-live of 14 days.",
        "pricing tier",
        "no counterpart",
    ),
    Word("message id", "An id set by the sender, or generated by the broker.", "MessageId", "message_id"),
    Word(
        "sequence number",
        "The broker's number for a message in its queue, increasing without gaps.",
        "SequenceNumber",
        "delivery tag (per channel only)",
    ),
    Word("subject", "A label set by the sender.", "Subject (formerly Label)", "type, or the routing key"),
    Word("peek-lock", "Receive in two steps: the message is locked, then settled.", "PeekLock", "consume with acknowledgements"),
    Word("receive-and-delete", "Receive in one step: the message is deleted at once.", "ReceiveAndDelete", "auto-ack"),
    Word("lock duration", "How long a lock lasts unless it is renewed.", "LockDuration", "consumer timeout, roughly"),
    Word("renew", "Restart a lock for its full duration.", "RenewMessageLock", "no counterpart"),
    Word("settle", "End a lock: complete, abandon, defer or dead-letter.", "settle", "ack, nack, reject"),
    Word("complete", "Processing succeeded: removes the message.", "Complete", "ack"),
    Word("abandon", "Processing failed: available again; the delivery counts as failed.", "Abandon", "nack with requeue"),
    Word("defer", "Process later: the message can then be received only by sequence number.", "Defer", "no counterpart"),
    Word(
        "delivery count",
        "The number of failed deliveries so far.",
        "DeliveryCount, MaxDeliveryCount",
        "x-delivery-count, delivery-limit",
    ),
    Word(
        "time-to-live",
        "How long a message stays in the queue. The queue's value is both default and maximum.",
        "TimeToLive",
        "message TTL, x-message-ttl",
    ),
    Word(
        "dead-letter queue",
        "The part of a queue that stores undeliverable messages. Messages in it never expire.",
        "$DeadLetterQueue",
        "a queue bound to a dead-letter exchange",
    ),
    Word(
        "resubmit",
        "Send a dead-lettered message to its queue again and remove it, in one transaction.",
        "re-submit (Service Bus Explorer)",
        "shovel, or publish again",
    ),
    Word("purge", "Delete messages that are not locked.", "batch delete", "purge"),
    Word("peek", "Read messages without changing anything.", "Peek", "get with requeue, roughly"),
    Word(
        "auto-delete on idle",
        "Deletes an entity after this time without use. Viewing it here does not count as use.",
        "AutoDeleteOnIdle",
        "x-expires",
    ),
    Word(
        "expiry mode",
        "When expired messages are removed: soon, only while a receiver is active, or only at the head of the queue.",
        "on activity",
        "at head",
    ),
    Word(
        "sweep",
        "A background task: removes expired messages, ends locks, enqueues due messages. The broker is correct without it.",
    ),
    Word("history", "All events of a message, kept after it is removed."),
)


@page
@require_GET
def glossary(request: HttpRequest) -> HttpResponse:
    return show(request, "help", {"section": "help", "states": STATES, "words": WORDS}, fragment="help")
