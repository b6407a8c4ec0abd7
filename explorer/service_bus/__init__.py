"""Pages and forms of Service Bus: queues, topics, subscriptions, rules, sessions."""
