"""Demo: a web shop whose programs send and receive through Vitrine's public Python and HTTP interfaces.

stage.py makes its entities, once; goods.py invents its messages; traffic.py is its programs; http_queue.py their HTTP client;
runner.py lets them take turns, and rests while somebody has paused them.
"""
