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
        "In the queue and available: the next receive takes the oldest of them.",
        "active; of Queue Storage: visible",
        "ready",
        "active",
        "active",
    ),
    Word(
        "locked",
        "One receiver holds it until it is settled or the lock ends; nobody else is given it meanwhile.",
        "locked (peek-lock); of Queue Storage: leased",
        "unacknowledged",
        "locked",
        "locked",
    ),
    Word(
        "scheduled",
        "Waits for its time; then it is enqueued under a new number.",
        "scheduled; of Queue Storage: delayed",
        "delayed (with the delayed-message plugin)",
        "scheduled",
        "scheduled",
    ),
    Word(
        "deferred",
        "Set aside by a receiver; only a receive by its number returns it.",
        "deferred",
        "no counterpart",
        "deferred",
        "deferred",
    ),
    Word(
        "expired, pending",
        "Its time-to-live has ended and no receive or sweep has taken it away yet. It is never delivered.",
        "expired",
        "expired",
        "expired",
        "expired",
    ),
    Word(
        "dead-lettered",
        "In the dead-letter queue, for a person to decide: too many failed deliveries, rejected by a receiver, or expired.",
        "dead-lettered",
        "dead-lettered (through a dead-letter exchange)",
        "dead",
        "dead",
    ),
)

WORDS = (
    Word("entity", "What has an address: a queue, a topic or a subscription.", "entity", "queue, exchange"),
    Word("queue", "Keeps messages in order until receivers take them.", "queue", "queue", "queue"),
    Word(
        "topic",
        "Gives each message to all of its subscriptions whose rules match it, and keeps only what is scheduled.",
        "topic",
        "exchange",
        "topic",
    ),
    Word(
        "subscription",
        "Keeps its own copies of a topic's messages, of those that its rules match; received from like a queue.",
        "subscription",
        "a queue bound to an exchange",
        "subscription",
    ),
    Word(
        "rule",
        "Says which messages a subscription copies, and what is changed on the copy. Without a rule it copies nothing.",
        "rule: filter and action",
        "binding",
        "rules",
    ),
    Word(
        "SQL filter",
        "A condition over a message's properties. Where it cannot be judged the message is a dead letter, or not copied.",
        "SqlFilter",
        "headers exchange, roughly",
    ),
    Word(
        "correlation filter", "Properties that must all be equal; faster than a SQL filter.", "CorrelationFilter", "routing key"
    ),
    Word(
        "session",
        "Messages with the same session id: received in order, by the one receiver that has accepted the session.",
        "session",
        "single active consumer, roughly",
        "session",
    ),
    Word("session state", "Bytes that a receiver leaves with a session for the next one.", "session state", "no counterpart"),
    Word(
        "duplicate detection",
        "A message whose id was seen within the window is accepted and dropped.",
        "RequiresDuplicateDetection",
        "no counterpart",
    ),
    Word(
        "forwarding",
        "Messages or dead letters of one entity go on to another by themselves.",
        "ForwardTo, ForwardDeadLetteredMessagesTo",
        "dead-letter exchange, exchange-to-exchange binding",
        "forward",
    ),
    Word(
        "transfer dead-letter queue",
        "Keeps what could not be handed on: the target is gone or refuses, or there were too many hops.",
        "$Transfer/$DeadLetterQueue",
        "no counterpart",
    ),
    Word(
        "namespace", "A set of entities with one clock, one tier and its own keys.", "namespace, storage account", "virtual host"
    ),
    Word(
        "family",
        "By whose rules a namespace's entities work: those of Service Bus, Queue Storage or RabbitMQ.",
    ),
    Word(
        "visibility timeout",
        "How long nobody gets a message of a storage queue: given with a put, a get or an update. Then it is visible again.",
        "visibilitytimeout",
        "no counterpart",
    ),
    Word(
        "lease",
        "The time for which a get made a message invisible. It ends by a delete, an update, or by itself.",
        "visibility timeout of a get",
        "unacknowledged delivery, without an end",
        "locked",
    ),
    Word(
        "pop receipt",
        "What a put, a get or an update gives, and update and delete ask for. The last one counts, lease or not.",
        "PopReceipt",
        "delivery tag, roughly",
    ),
    Word("dequeue count", "How often a message was got. Nothing resets it.", "DequeueCount", "x-delivery-count, roughly"),
    Word(
        "poison queue",
        "Where messages of a storage queue go that were got too often without being deleted; requeue brings them back.",
        "NAME-poison, by convention of Functions",
        "a queue bound to a dead-letter exchange",
    ),
    Word(
        "release",
        "An operator ends an invisibility: the message is visible now, and whoever holds it has a dead receipt.",
        "no counterpart",
        "close the connection that holds it",
        "unlock",
    ),
    Word(
        "approximate count",
        "How many messages a storage queue has, visible or not, without those that have expired. Here it is exact.",
        "x-ms-approximate-messages-count",
        "messages",
    ),
    Word(
        "exchange", "Takes what is published and routes it to queues, by its type and its bindings.", "topic", "exchange", "topic"
    ),
    Word(
        "unacked",
        "Delivered to a consumer that has not acknowledged it yet. It comes back when the consumer's connection ends.",
        "locked, leased",
        "unacknowledged",
        "locked",
    ),
    Word(
        "routing key", "What a publisher addresses a message with; the exchange compares it.", "subject, roughly", "routing key"
    ),
    Word(
        "binding",
        "Leads from an exchange to a queue or another exchange, for the routing keys or headers that it names.",
        "rule of a subscription",
        "binding",
    ),
    Word(
        "alternate exchange",
        "Where an exchange hands what none of its bindings matches.",
        "no counterpart",
        "alternate-exchange",
    ),
    Word(
        "expiration",
        "The life that a publisher gives a message, in milliseconds; of it and the queue's time-to-live the shorter holds.",
        "TimeToLive of a message",
        "expiration",
    ),
    Word(
        "dead-letter exchange",
        "Where rejected, expired and surplus messages of a queue are published anew. Without one they are dropped.",
        "dead-letter queue, roughly",
        "x-dead-letter-exchange (DLX)",
    ),
    Word(
        "x-death",
        "The header that tells of a message's deaths: for each queue and reason, how often, when first, and by which exchange.",
        "DeadLetterReason",
        "x-death",
    ),
    Word(
        "prefetch",
        "How many deliveries a consumer may hold without having acknowledged them.",
        "prefetch count",
        "basic.qos prefetch",
    ),
    Word("redelivered", "It was delivered before and came back.", "DeliveryCount above 1", "redelivered"),
    Word(
        "delivery limit",
        "How often a message of a quorum queue may come back; then it is dead-lettered, or dropped.",
        "MaxDeliveryCount",
        "x-delivery-limit",
    ),
    Word(
        "max length",
        "How many ready messages a queue keeps; its overflow says whether the oldest goes or the new one is refused.",
        "MaxSizeInMegabytes, roughly",
        "x-max-length, x-max-length-bytes, x-overflow",
    ),
    Word(
        "quorum queue",
        "A queue that counts what comes back and has a delivery limit. In RabbitMQ it is also kept on several nodes.",
        "no counterpart",
        "x-queue-type: quorum",
    ),
    Word(
        "connection",
        "What a client opens channels and consumes on. When it ends, what it holds comes back, and its exclusive queues go.",
        "AMQP connection",
        "connection",
    ),
    Word(
        "exclusive queue",
        "Only the connection that declared it may use it, and it goes with that connection.",
        "no counterpart",
        "exclusive",
    ),
    Word(
        "definitions",
        "A document of exchanges, queues, bindings and policies, without messages.",
        "template, roughly",
        "definitions.json",
    ),
    Word(
        "policy",
        "Settings for all queues and exchanges of a virtual host whose names match; an operator's bounds what others ask for.",
        "no counterpart",
        "policy, operator policy",
        "rules",
    ),
    Word(
        "tier",
        "What a namespace may have: Basic has queues alone, and no message in it outlives 14 days.",
        "pricing tier",
        "no counterpart",
    ),
    Word("message id", "The sender's name for a message; the broker gives one where there is none.", "MessageId", "message_id"),
    Word(
        "sequence number",
        "The broker's number for a message in its queue: rising, without gaps.",
        "SequenceNumber",
        "delivery tag (per channel only)",
    ),
    Word("subject", "What the sender says the message is about.", "Subject (formerly Label)", "type, or the routing key"),
    Word(
        "peek-lock", "Receiving in two steps: the message is locked, then settled.", "PeekLock", "consume with acknowledgements"
    ),
    Word("receive-and-delete", "Receiving in one step: what the receiver loses is lost.", "ReceiveAndDelete", "auto-ack"),
    Word("lock duration", "How long a lock lasts unless it is renewed.", "LockDuration", "consumer timeout, roughly"),
    Word("renew", "Let the lock last its full duration from now on.", "RenewMessageLock", "no counterpart"),
    Word("settle", "End a lock: complete, abandon, defer or dead-letter.", "settle", "ack, nack, reject"),
    Word("complete", "Done: the message leaves the queue.", "Complete", "ack"),
    Word("abandon", "Not done: available again at once, and the delivery counts as failed.", "Abandon", "nack with requeue"),
    Word("defer", "Not now: set aside until asked for by number.", "Defer", "no counterpart"),
    Word(
        "delivery count",
        "Failed deliveries so far, of those allowed.",
        "DeliveryCount, MaxDeliveryCount",
        "x-delivery-count, delivery-limit",
    ),
    Word(
        "time-to-live",
        "How long a message lives in the queue; the queue's value is default and ceiling.",
        "TimeToLive",
        "message TTL, x-message-ttl",
    ),
    Word(
        "dead-letter queue",
        "The part of a queue that keeps what could not be delivered. Nothing expires in it.",
        "$DeadLetterQueue",
        "a queue bound to a dead-letter exchange",
    ),
    Word(
        "resubmit",
        "Send a dead letter to its queue again and remove it, in one transaction.",
        "re-submit (Service Bus Explorer)",
        "shovel, or publish again",
    ),
    Word("purge", "Delete messages that nobody holds.", "batch delete", "purge"),
    Word("peek", "Look at messages without changing anything.", "Peek", "get with requeue, roughly"),
    Word(
        "auto-delete on idle",
        "A queue that nobody uses for so long is deleted. Looking at it here is no use.",
        "AutoDeleteOnIdle",
        "x-expires",
    ),
    Word(
        "expiry mode",
        "When expired messages are taken away: soon, only while somebody receives, or only at the head of the queue.",
        "on activity",
        "at head",
    ),
    Word(
        "sweep",
        "A task that tidies: it moves expired messages, ends locks, enqueues what is due. The broker is right without it.",
    ),
    Word("history", "Every change of a message, kept after it is gone."),
)


@page
@require_GET
def glossary(request: HttpRequest) -> HttpResponse:
    return show(request, "help", {"section": "help", "states": STATES, "words": WORDS}, fragment="help")
