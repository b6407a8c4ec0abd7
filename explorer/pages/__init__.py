"""Pages that every family has."""
