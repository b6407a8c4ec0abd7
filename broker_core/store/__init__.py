"""The only code that speaks SQL: named statements, the connections that run them, and rows turned into values."""
