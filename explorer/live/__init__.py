"""Live pages: one reader a process follows what its viewers look at and tells them the differences (design D8).

watches.py says what each kind of page shows, feed.py reads it when something happened, consumers.py holds the browsers' sockets,
static/explorer/live.js applies what arrives.
"""
