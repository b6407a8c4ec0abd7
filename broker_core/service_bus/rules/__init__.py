"""What Azure Service Bus decides: messages, sessions, topics with their filters, forwarding, transactions, settings (SB-)."""
