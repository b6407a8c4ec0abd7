"""The time bar of an entity: what happened recently, what the clock will change, and the controls of a manual clock.

bar.py says what it shows, pages.py is what views and other pages use, time_scale.py says where an instant is. The clock is moved
by its own page (clocks.py); explorer/time_travel shows the past.
"""

from .pages import TEMPLATE, context, fragments, of, of_past

__all__ = ["TEMPLATE", "context", "fragments", "of", "of_past"]
