"""Form fields and query forms that pages of all families use."""
