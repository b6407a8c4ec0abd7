"""Demo: programs that send and receive through Vitrine's public Python and HTTP interfaces.

Each family has its own part (explorer/<family>/demo). parts.py finds them; set_up.py sets them up once; runner.py runs their
programs in turn and pauses them; pages.py is the button that does so.
"""
