"""Pages of the RabbitMQ family: a virtual host with its exchanges, queues, policies, connections and definitions.

One module per page. Pages only read: they do not renew the expiry of queues or mark messages as redelivered (RMQ-906).
"""
