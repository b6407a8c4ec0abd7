"""Forms of the Service Bus pages."""
