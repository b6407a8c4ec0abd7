"""What pages are built from: the shell, lists and their filters, the split view, a message, settings."""
