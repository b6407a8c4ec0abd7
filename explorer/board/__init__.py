"""The board of an entity: its messages as chips in lanes by state, with the messages that left recently.

lanes.py builds the lanes, reading.py reads their messages, pages.py is what views and other pages use. The families say which
lanes their entities have (FamilyPages.board). static/explorer/live.js moves the chips when the feed sends changed lanes.
"""

from .pages import LANES, TEMPLATE, context, fragments, is_asked, of

__all__ = ["LANES", "TEMPLATE", "context", "fragments", "is_asked", "of"]
