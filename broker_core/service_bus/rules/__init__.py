"""Rules of Azure Service Bus (SB-): messages, sessions, filters, forwarding, transactions, settings. Pure functions, no I/O."""
