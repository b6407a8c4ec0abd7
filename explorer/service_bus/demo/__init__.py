"""Service Bus part of the demo: a web shop whose programs send and receive in Python and over HTTP.

shop.py creates the entities; messages.py generates messages; traffic.py holds the programs; http_queue.py is their HTTP client.
"""

from .shop import NAMESPACE, seed
from .traffic import DOES, programs

__all__ = ["DOES", "NAMESPACE", "programs", "seed"]
