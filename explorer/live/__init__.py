"""Live pages: one feed per process follows the events of the watched pages and sends their changes (docs/design.md D8).

pages.py says which page has which watch, watches.py and vhost_watches.py what each shows, feed.py reads it when something
happened, consumers.py holds the browsers' sockets, static/explorer/live.js applies what arrives.
"""
