"""The format of an export, and the bases of the families' parts of it."""
