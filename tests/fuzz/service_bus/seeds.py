"""Valid inputs of each target of Service Bus, and the pieces that are put into them."""

from __future__ import annotations

ATOM = b"http://www.w3.org/2005/Atom"
SERVICE_BUS = b"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
_DECLARED = (
    b"xmlns='%s' xmlns:i='http://www.w3.org/2001/XMLSchema-instance' xmlns:x='http://www.w3.org/2001/XMLSchema'" % SERVICE_BUS
)
SPELLED = b"SharedAccessSignature sr=http%3A%2F%2Flocalhost%3A5300%2F&se=9999999999&skn=root&sig=SIGNATURE"
UPDATE = b"If-Match: *\r\n"


def entry(name: bytes, inner: bytes = b"") -> bytes:
    return b"<entry xmlns='%s'><content type='application/xml'><%s %s>%s</%s></content></entry>" % (
        *(ATOM, name, _DECLARED, inner, name),
    )


POLICIES = (
    b"<AuthorizationRules><AuthorizationRule i:type='SharedAccessAuthorizationRule'><ClaimType>SharedAccessKey</ClaimType>"
    b"<Rights><AccessRights>Send</AccessRights><AccessRights>Manage</AccessRights></Rights><KeyName>app</KeyName>"
    b"<PrimaryKey>QUJDREVGR0g=</PrimaryKey></AuthorizationRule></AuthorizationRules>"
)
QUEUE = entry(
    b"QueueDescription",
    b"<LockDuration>PT30S</LockDuration><MaxSizeInMegabytes>1024</MaxSizeInMegabytes><DefaultMessageTimeToLive>"
    b"P10675199DT2H48M5.477539S</DefaultMessageTimeToLive><DuplicateDetectionHistoryTimeWindow>PT10M"
    b"</DuplicateDetectionHistoryTimeWindow><MaxDeliveryCount>5</MaxDeliveryCount><EnableBatchedOperations>true"
    b"</EnableBatchedOperations><SizeInBytes>0</SizeInBytes>" + POLICIES + b"<Status>Active</Status><UserMetadata>a &lt; b&#xD;"
    b"</UserMetadata><ForwardTo i:nil='true' /><AutoDeleteOnIdle>P1D</AutoDeleteOnIdle><EntityAvailabilityStatus>Available"
    b"</EntityAvailabilityStatus><EnableExpress>false</EnableExpress>",
)
FORWARDING = entry(
    b"QueueDescription",
    b"<ForwardTo>sb://localhost:5300/parts%2Fwheels</ForwardTo><ForwardDeadLetteredMessagesTo>orders"
    b"</ForwardDeadLetteredMessagesTo><RequiresSession>0</RequiresSession>",
)
TOPIC = entry(
    b"TopicDescription",
    b"<DefaultMessageTimeToLive>PT1H</DefaultMessageTimeToLive><RequiresDuplicateDetection>false</RequiresDuplicateDetection>"
    b"<FilteringMessagesBeforePublishing>true</FilteringMessagesBeforePublishing><AuthorizationRules />"
    b"<SupportOrdering>false</SupportOrdering><EnableSubscriptionPartitioning>false</EnableSubscriptionPartitioning>",
)
SQL_FILTER = (
    b"<Filter i:type='SqlFilter'><SqlExpression>colour = @c AND size &gt; 5</SqlExpression><CompatibilityLevel>20"
    b"</CompatibilityLevel><Parameters><KeyValueOfstringanyType><Key>@c</Key><Value i:type='x:string'>red</Value>"
    b"</KeyValueOfstringanyType></Parameters><RequiresPreprocessing>true</RequiresPreprocessing></Filter>"
)
ACTION = (
    b"<Action i:type='SqlRuleAction'><SqlExpression>SET size = @n; REMOVE colour</SqlExpression><Parameters>"
    b"<KeyValueOfstringanyType><Key>@n</Key><Value i:type='x:int'>5</Value></KeyValueOfstringanyType></Parameters></Action>"
)
VALUES = b"".join(
    b"<KeyValueOfstringanyType><Key>%s</Key><Value i:type='x:%s'>%s</Value></KeyValueOfstringanyType>" % (kind, kind, text)
    for kind, text in (
        *((b"int", b"-5"), (b"long", b"9223372036854775807"), (b"double", b"1.5E-3"), (b"boolean", b"true"), (b"string", b" a ")),
        *((b"dateTime", b"2026-11-30T06:00:00.1234567Z"), (b"duration", b"P1DT2H3.5S")),
    )
)
CORRELATION = (
    b"<Filter i:type='CorrelationFilter'><CorrelationId>c</CorrelationId><MessageId>m</MessageId><To>t</To><Label>l</Label>"
    b"<SessionId>s</SessionId><ContentType /><Properties>" + VALUES + b"</Properties></Filter>"
)
RULE = entry(b"RuleDescription", SQL_FILTER + ACTION + b"<Name>only-red</Name>")
CORRELATION_RULE = entry(b"RuleDescription", CORRELATION + b"<Action i:type='EmptyRuleAction' />")
# As the clients of Python and of JavaScript write them, with other prefixes.
PREFIXED = (
    b"<ns0:entry xmlns:ns0='%s'><ns0:content type='application/xml'><SubscriptionDescription xmlns='%s'><LockDuration>PT1M"
    b"</LockDuration></SubscriptionDescription></ns0:content></ns0:entry>" % (ATOM, SERVICE_BUS)
)
JAVASCRIPT = entry(
    b"RuleDescription",
    b"<Filter p4:type='SqlFilter' xmlns:p4='http://www.w3.org/2001/XMLSchema-instance'><SqlExpression>a = @p</SqlExpression>"
    b"<Parameters><KeyValueOfstringanyType><Key>@p</Key><Value p4:type='l28:double' xmlns:l28='http://www.w3.org/2001/XMLSchema'>"
    b"1</Value></KeyValueOfstringanyType></Parameters></Filter>",
)
SUBSCRIPTION = entry(
    b"SubscriptionDescription",
    b"<RequiresSession>false</RequiresSession><DeadLetteringOnFilterEvaluationExceptions>true"
    b"</DeadLetteringOnFilterEvaluationExceptions><DefaultRuleDescription><Filter i:type='FalseFilter' /><Name>none</Name>"
    b"</DefaultRuleDescription><Status>ReceiveDisabled</Status><AutoDeleteOnIdle>PT5M</AutoDeleteOnIdle>",
)
ENTITIES = [QUEUE, FORWARDING, TOPIC, SUBSCRIPTION, PREFIXED]
RULES = [RULE, CORRELATION_RULE, JAVASCRIPT, entry(b"RuleDescription", b"<Filter i:type='TrueFilter' />")]


def request(line: bytes, body: bytes = b"", *, headers: bytes = b"", token: bytes = b"TOKEN") -> bytes:
    """The bytes of a request. TOKEN and SIGNATURE are replaced before it is sent (requests.py)."""
    if body or line.startswith((b"PUT", b"POST")):
        headers += b"Content-Length: LENGTH\r\n"
    return b"%s HTTP/1.1\r\nHost: localhost:5300\r\nAuthorization: %s\r\n%s\r\n%s" % (line, token, headers, body)


VERSION = b"?api-version=2024-05&enrich=false"
ALL = b"/news/Subscriptions/all"
ADMINISTRATION = [
    request(b"GET /$namespaceinfo" + VERSION),
    request(b"GET /$Resources/queues" + VERSION + b"&$skip=0&$top=2"),
    request(b"GET /$resources/Topics?$top=1&%24skip=1"),
    request(b"GET /orders" + VERSION, token=SPELLED),
    request(b"GET /news" + VERSION),
    request(b"GET /news/Subscriptions?$skip=0&$top=100"),
    request(b"GET /news/subscriptions/all" + VERSION),
    request(b"GET " + ALL + b"/Rules?$skip=0&$top=100"),
    request(b"GET " + ALL + b"/rules/%24Default"),
    request(b"PUT /parts%2Fwheels" + VERSION, QUEUE),
    request(b"PUT /orders" + VERSION, QUEUE, headers=UPDATE),
    request(b"PUT /forwards", FORWARDING, headers=b"ServiceBusSupplementaryAuthorization: TOKEN\r\n"),
    request(b"PUT /news-2", TOPIC, headers=b"If-None-Match: *\r\n"),
    request(b"PUT /news", TOPIC, headers=UPDATE),
    request(b"PUT /news/Subscriptions/new", SUBSCRIPTION),
    request(b"PUT " + ALL, PREFIXED, headers=UPDATE),
    request(b"PUT " + ALL + b"/Rules/only-red", RULE),
    request(b"PUT " + ALL + b"/Rules/$Default", CORRELATION_RULE, headers=UPDATE),
    request(b"PUT " + ALL + b"/Rules/js", JAVASCRIPT),
    request(b"DELETE " + ALL + b"/Rules/only-red"),
    request(b"DELETE /news/Subscriptions/new"),
    request(b"DELETE /forwards"),
    request(b"DELETE /parts%2Fwheels"),
    request(b"DELETE /news-2"),
]
BATCH = b'[{"Body": "a", "BrokerProperties": {"TimeToLiveTimeSpan": "0.00:10:00"}}, {"Body": "AP8=", "IsBodyBase64": true}]'
MESSAGES = [
    request(b"GET /health"),
    request(b"POST /orders/messages", b"x", headers=b'BrokerProperties: {"MessageId": "m", "TimeToLive": 60}\r\npriority: 5\r\n'),
    request(b"POST /news/messages", BATCH, headers=b"Content-Type: application/vnd.microsoft.servicebus.json\r\n"),
    request(b"POST /orders/messages/head?timeout=0"),
    request(b"DELETE " + ALL + b"/messages/head?timeout=0"),
    request(b"POST /orders/$DeadLetterQueue/messages/head?timeout=0"),
    request(b"POST /orders/messages/1/LOCK"),
    request(b"PUT /orders/messages/1/LOCK"),
    request(b"DELETE /orders/messages/1/LOCK"),
]
REQUESTS = ADMINISTRATION + MESSAGES

SEEDS: dict[str, list[bytes]] = {
    "entity_path": [
        b"/parts%2Fwheels/left",
        b"/news/Subscriptions/all/Rules/%24Default",
        b"/news%2Fsubscriptions/all/rules",
        b"/$Resources/queues",
        b"/%24namespaceinfo",
        b"/orders/..%2Fother/%00/",
    ],
    "entity": ENTITIES,
    "rule": RULES,
    "service_bus_request": REQUESTS,
}

PIECES = [
    *(b"$top=", b"$skip=", b"%24top=0", b"api-version=", b"If-Match: *\r\n", b'If-Match: "a"\r\n', b"If-None-Match: *\r\n"),
    *(b"/Subscriptions", b"/subscriptions/", b"/Rules/", b"/$Resources", b"/messages", b"/head", b"/LOCK", b"$DeadLetterQueue"),
    *(b" i:type='x:int'", b" i:type='SqlFilter'", b" i:type=''", b" i:nil='true'", b"xmlns='%s'" % SERVICE_BUS, b"i:", b"x:"),
    *(b"P1000000000D", b"-PT1S", b"PT", b"P1Y", b"PT0.0000001S", b"true", b"0001-01-01T00:00:00+14:00", b"INF", b"sb://", b"@"),
    *(
        b"<Name>",
        b"</Name>",
        b"<SqlExpression>",
        b"</SqlExpression>",
        b"<Key>",
        b"</Key>",
        b"<Value>",
        b"</Value>",
        b"<Status />",
    ),
    *(b"TOKEN", b"sr=", b"&se=", b"&skn=", b"&sig=", b"ServiceBusSupplementaryAuthorization: ", b"timeout="),
    b"BrokerProperties: {",
    *(QUEUE, TOPIC, SUBSCRIPTION, RULE, POLICIES, SQL_FILTER, ACTION, CORRELATION, VALUES),
]
