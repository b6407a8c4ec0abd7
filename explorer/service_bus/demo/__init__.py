"""Service Bus part of the demo: a web shop whose programs send and receive in Python and over HTTP.

shop.py creates the entities; messages.py generates messages; traffic.py holds the programs; http_queue.py is their HTTP client;
designed.py names the failures that the shop is made to have.
"""

from .designed import DESIGNED
from .shop import NAMESPACE, seed
from .traffic import DOES, programs

__all__ = ["DESIGNED", "DOES", "NAMESPACE", "programs", "seed"]
