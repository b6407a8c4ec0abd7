"""Live pages: one feed per process follows the events of the watched pages and sends their changes (docs/design.md D8).

A view declares its live fragments (page.py). feed.py asks the view again when something happened that affects it, consumers.py
holds the browsers' sockets, and static/explorer/live.js applies what arrives.
"""
