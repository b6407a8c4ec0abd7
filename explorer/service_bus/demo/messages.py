"""Generates the shop's messages. Pure: the random generator is an argument."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

from broker_core.service_bus.rules.values import Message

CUSTOMERS = (
    ("C-1041", "Amara Okafor", "NG"), ("C-1077", "Jonas Lindqvist", "SE"), ("C-1102", "Mei Tanaka", "JP"),
    ("C-1138", "Lucía Fernández", "ES"), ("C-1150", "Tomasz Nowak", "PL"), ("C-1189", "Priya Raman", "IN"),
    ("C-1203", "Hannah Weiß", "DE"), ("C-1217", "Olivier Dubois", "FR"),
)  # fmt: skip
WARES = (
    ("KTL-01", "Kettle, enamel", 34.90), ("LMP-07", "Desk lamp", 59.00), ("MUG-03", "Mug, stoneware", 12.50),
    ("CHR-12", "Folding chair", 89.00), ("RUG-05", "Wool rug 120 x 180", 149.00), ("CLK-02", "Wall clock", 42.00),
)  # fmt: skip
REGIONS = ("eu-west", "eu-north", "us-east", "ap-south")
METHODS = ("card",) * 6 + ("bank transfer", "pay later")
CHANNELS = ("e-mail", "push", "sms")
REMINDERS = ("basket.left", "delivery.tomorrow", "review.please")
JSON = "application/json"


def order(dice: Random) -> Message:
    """A customer's order. One in twenty names no customer and can never be processed."""
    number = f"SO-{dice.randrange(10**8):08d}"
    customer, name, country = dice.choice(CUSTOMERS)
    lines: list[dict[str, Any]] = [
        {"sku": sku, "name": ware, "quantity": dice.randint(1, 4), "unitPrice": price}
        for sku, ware, price in dice.sample(WARES, dice.randint(1, 3))
    ]
    total = round(sum(line["quantity"] * line["unitPrice"] for line in lines), 2)
    content = {
        "order": number,
        "customer": {"id": customer, "name": name, "country": country} if dice.random() > 0.05 else None,
        "currency": "EUR",
        "lines": lines,
        "total": total,
    }
    properties = {"region": dice.choice(REGIONS), "lines": len(lines), "total": total, "express": dice.random() < 0.2}
    basket = f"basket-{dice.getrandbits(32):08x}"
    return _message(number, content, "order.placed", correlation_id=basket, properties=properties)


def payment(dice: Random, placed: dict) -> Message:
    """The payment of an order."""
    method = dice.choice(METHODS)
    content = {
        "payment": f"PAY-{dice.randrange(10**7):07d}",
        "order": placed["order"],
        "customer": placed["customer"],
        "method": method,
        "amount": placed["total"],
        "currency": placed["currency"],
    }
    properties = {
        "method": method,
        "risk": round(dice.random(), 3),
        "trace": UUID(int=dice.getrandbits(128), version=4),
        "requested_at": datetime.now(UTC),
    }
    return _message(content["payment"], content, "payment.requested", correlation_id=placed["order"], properties=properties)


def invoice(dice: Random, paid: dict) -> Message:
    number = f"INV-{dice.randrange(10**7):07d}"
    net = round(paid["amount"] / 1.19, 2)
    content = {
        "invoice": number,
        "order": paid["order"],
        "customer": paid["customer"],
        "net": net,
        "vat": round(paid["amount"] - net, 2),
        "currency": paid["currency"],
        "due": (datetime.now(UTC) + timedelta(days=14)).date().isoformat(),
    }
    properties = {"country": (paid["customer"] or {}).get("country", "DE"), "net": net, "pages": 1}
    return _message(number, content, "invoice.due", correlation_id=paid["order"], properties=properties)


def notification(dice: Random, placed: dict) -> Message:
    channel = dice.choice(CHANNELS)
    name = placed["customer"]["name"].split()[0]
    content = {
        "channel": channel,
        "to": placed["customer"]["id"],
        "text": f"Thank you, {name}! We are packing {placed['order']}.",
    }
    return _message(
        f"note-{dice.getrandbits(40):010x}",
        content,
        f"notify.{channel}",
        correlation_id=placed["order"],
        properties={"channel": channel},
    )


def reminder(dice: Random, at: datetime) -> Message:
    """A message scheduled for `at` (namespace's clock)."""
    subject = dice.choice(REMINDERS)
    customer, name, _ = dice.choice(CUSTOMERS)
    content = {"reminder": subject, "customer": {"id": customer, "name": name}}
    return _message(f"reminder-{dice.getrandbits(40):010x}", content, subject, scheduled_enqueue_at=at)


def stock_level(dice: Random) -> Message:
    sku, ware, _ = dice.choice(WARES)
    on_hand = dice.randint(0, 250)
    content = {"sku": sku, "name": ware, "onHand": on_hand}
    properties = {"sku": sku, "low": on_hand < 20}
    return _message(f"stock-{dice.getrandbits(40):010x}", content, "stock.counted", properties=properties)


def event(dice: Random) -> Message:
    """An event for the topic: two of three are orders, the others parcels that were delivered or returned."""
    subject = dice.choice(("order.placed",) * 4 + ("parcel.delivered", "parcel.returned"))
    customer, name, country = dice.choice(CUSTOMERS)
    content = {"event": subject, "customer": {"id": customer, "name": name}, "receipt": dice.random() > 0.2}
    properties: dict[str, Any] = {"region": dice.choice(REGIONS), "country": country}
    if subject == "order.placed":
        properties["total"] = round(dice.uniform(10, 400), 2)
    return _message(f"event-{dice.getrandbits(40):010x}", content, subject, properties=properties)


def parcel(dice: Random) -> list[Message]:
    """The steps of a parcel's journey, in order, as one session."""
    number = f"parcel-{dice.randrange(10**5):05d}"
    steps = ("collected", "sorted", *(("customs",) if dice.random() < 0.3 else ()), "delivered")
    return [
        _message(f"{number}-{step}", {"parcel": number, "step": step, "of": len(steps)}, f"parcel.{step}", session_id=number)
        for step in steps
    ]


def _message(message_id: str, content: dict, subject: str, **values) -> Message:
    body = json.dumps(content, ensure_ascii=False).encode()
    return Message(body=body, message_id=message_id, subject=subject, content_type=JSON, **values)
