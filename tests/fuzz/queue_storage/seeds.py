"""Valid inputs of each target of Queue Storage, and the pieces that are put into them."""

from __future__ import annotations

SAS = b"sv=2026-02-06&ss=q&srt=sco&sp=rwdlacup&se=2099-01-01T00:00:00Z&sig=SIGNATURE"
SERVICE_SAS = b"sv=2026-02-06&sp=raup&st=2020-01-01&se=2099-01-01T00:00Z&sip=127.0.0.1-127.0.0.9&spr=https,http&sig=SIGNATURE"
POLICY_SAS = b"sv=2026-02-06&si=readers&sig=SIGNATURE"
SIGNED = b"Authorization: SharedKey fuzzed:SIGNATURE\r\nx-ms-version: 2026-10-06\r\nx-ms-date: DATE\r\n"
MESSAGE = b"<?xml version='1.0' encoding='utf-8'?><QueueMessage><MessageText>a &lt; b&#xD;</MessageText></QueueMessage>"
POLICIES = (
    b"<SignedIdentifiers><SignedIdentifier><Id>readers</Id><AccessPolicy><Start>2026-11-21T02:55:46.1234567Z</Start>"
    b"<Expiry>2099-11-22</Expiry><Permission>raup</Permission></AccessPolicy></SignedIdentifier><SignedIdentifier><Id>b</Id>"
    b"</SignedIdentifier></SignedIdentifiers>"
)
PROPERTIES = (
    b"<StorageServiceProperties><Logging><Version>1.0</Version><Delete>true</Delete><Read>false</Read><Write>true</Write>"
    b"<RetentionPolicy><Enabled>true</Enabled><Days>7</Days></RetentionPolicy></Logging><HourMetrics><Version>1.0</Version>"
    b"<Enabled>false</Enabled><RetentionPolicy><Enabled>false</Enabled></RetentionPolicy></HourMetrics><MinuteMetrics>"
    b"<Version>1.0</Version><Enabled>true</Enabled><IncludeAPIs>true</IncludeAPIs></MinuteMetrics><Cors><CorsRule>"
    b"<AllowedOrigins>http://a,*</AllowedOrigins><AllowedMethods>GET,PUT</AllowedMethods><AllowedHeaders>x-ms-*</AllowedHeaders>"
    b"<ExposedHeaders /><MaxAgeInSeconds>5</MaxAgeInSeconds></CorsRule></Cors></StorageServiceProperties>"
)


def request(line: bytes, body: bytes = b"", *, headers: bytes = SIGNED) -> bytes:
    """The bytes of a request. SIGNATURE and DATE are replaced before it is sent (requests.py)."""
    length = b""
    if b"chunked" in headers:
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    elif body or line.startswith((b"PUT", b"POST")):
        length = b"Content-Length: LENGTH\r\n"
    return line + b" HTTP/1.1\r\nHost: 127.0.0.1:10001\r\n" + headers + length + b"\r\n" + body


MESSAGES = b"/fuzzed/orders/messages"
PREFLIGHT = b"Origin: http://a\r\nAccess-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: x-ms-date\r\n"
REQUESTS = [
    request(b"GET /fuzzed/?comp=list&prefix=o&maxresults=5&include=metadata&marker=b3JkZXJz"),
    request(b"GET /fuzzed/?restype=service&comp=properties"),
    request(b"PUT /fuzzed/?restype=service&comp=properties", PROPERTIES),
    request(b"GET /fuzzed-secondary/?restype=service&comp=stats"),
    request(b"OPTIONS /fuzzed/orders", headers=PREFLIGHT),
    request(b"PUT /fuzzed/orders", headers=SIGNED + b"x-ms-meta-team: a\r\nx-ms-client-request-id: 1-2\r\n"),
    request(b"DELETE /fuzzed/orders"),
    request(b"HEAD /fuzzed/orders?comp=metadata", headers=SIGNED + b"Origin: http://a\r\n"),
    request(b"PUT /fuzzed/orders?comp=metadata", headers=SIGNED + b"x-ms-meta-a_b: 1\r\nx-ms-meta-a1: 2\r\n"),
    request(b"GET /fuzzed/orders?comp=acl"),
    request(b"PUT /fuzzed/orders?comp=acl&timeout=30", POLICIES),
    request(b"POST " + MESSAGES + b"?visibilitytimeout=0&messagettl=-1", MESSAGE),
    request(b"GET " + MESSAGES + b"?numofmessages=32&visibilitytimeout=1"),
    request(b"GET " + MESSAGES + b"?peekonly=true&numofmessages=2"),
    request(b"DELETE " + MESSAGES),
    request(b"PUT " + MESSAGES + b"/MESSAGE?popreceipt=RECEIPT&visibilitytimeout=0", MESSAGE),
    request(b"DELETE " + MESSAGES + b"/MESSAGE?popreceipt=RECEIPT"),
    request(b"GET /fuzzed/?comp=list&" + SAS, headers=b""),
    request(b"POST " + MESSAGES + b"?" + SERVICE_SAS, MESSAGE, headers=b"Transfer-Encoding: chunked\r\n"),
    request(b"GET " + MESSAGES + b"?" + POLICY_SAS, headers=b""),
    request(b"GET /orders/messages", headers=SIGNED).replace(b"127.0.0.1", b"fuzzed.queue.localhost"),
    request(b"GET /fuzzed/?comp=list", headers=SIGNED.replace(b"SharedKey", b"SharedKeyLite")),
]

SEEDS: dict[str, list[bytes]] = {
    "shared_key": [
        b"SharedKey fuzzed:"
        + b"A" * 43
        + b"=\nPUT\n/fuzzed/orders\ncomp=metadata&b=1&B=2\nx-ms-date: Sun, 06 Nov 1994 08:49:37 GMT"
        b"\nx-ms-meta-a_b: 1\nContent-Length: 0",
        b"SharedKeyLite fuzzed:" + b"/" * 43 + b"=\nGET\n/fuzzed-secondary/\ncomp=list\ndate: Sun, 06 Nov 1994 08:49:37 GMT",
    ],
    "sas": [SAS, SERVICE_SAS, POLICY_SAS, SAS + b"&skoid=1&ses=scope&ss=b"],
    "path": [
        b"127.0.0.1:10001 /fuzzed/orders/messages/4c-1",
        b"[::1]:1 /fuzzed-secondary/",
        b"fuzzed.queue.localhost:10001 /or%64ers/messages",
        b"localhost /fuzzed/..%2Fother/%00/",
    ],
    "xml": [MESSAGE, POLICIES, PROPERTIES, b"\xef\xbb\xbf<s:a xmlns:s='u'><![CDATA[]]><!-- --><?p q?>&#233;</s:a>"],
    "numbers": [
        b"numofmessages=32&visibilitytimeout=604800&messagettl=-1&maxresults=5000&timeout=30&peekonly=true&popreceipt=AA==",
        b"NumOfMessages=%31&messagettl=9223372036854775808&timeout=1.0",
    ],
    "text": [MESSAGE],
    "policies": [POLICIES],
    "properties": [PROPERTIES],
    "receipt": [b"q83vASNFZ4mrze8BI0VniQ==", b"YWJj"],
    "date": [b"Sun, 06 Nov 1994 08:49:37 GMT", b"2026-11-21T02:55:46.1234567Z", b"2026-11-21"],
    "metadata": [b"team: a\nb_c: d", b"A: 1\na: 2"],
    "queue_storage_request": REQUESTS,
}

PIECES = [
    *(b"comp=", b"restype=", b"sig=", b"sv=", b"si=", b"sp=", b"popreceipt=", b"visibilitytimeout=", b"numofmessages="),
    *(b"peekonly=true", b"x-ms-version: ", b"x-ms-date: ", b"x-ms-meta-", b"x-ms-meta-: ", b"x-ms-client-request-id: "),
    *(b"Origin: http://a\r\n", b"SharedKey ", b"SharedKeyLite ", b"DATE", b"MESSAGE", b"RECEIPT"),
]
