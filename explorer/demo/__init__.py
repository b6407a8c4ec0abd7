"""Demo: programs that send and receive through Vitrine's public Python and HTTP interfaces.

Each family has its own part (explorer/<family>/demo). parts.py finds them; set_up.py sets them up once; runner.py runs their
programs in turn and pauses them; designed.py knows the failures that
it is made to have; faults.py are those on demand; menu.py and pages.py are its menus.
"""
