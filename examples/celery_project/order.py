"""Publish ten charges, a reminder in 30 seconds, and a task that always fails."""

from shop import charge, deliver_to_the_moon, remind

for order in range(1, 11):
    charge.delay(order, cents=1999)
remind.apply_async((3,), countdown=30)
deliver_to_the_moon.delay(7)
print("12 tasks published: 10 charges, 1 reminder in 30 seconds, 1 that always fails")
