"""Pages of RabbitMQ's family: a virtual host with its exchanges, queues, policies, connections and definitions.

A module per page; `presenters.py` says how facts are put. Looking is done with reads alone: it renews no queue's
expiry and marks no message as redelivered (RMQ-906).
"""
