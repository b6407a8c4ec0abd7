"""Users: roles, signing in and its limits, preferences."""
