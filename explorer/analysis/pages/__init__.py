"""The pages of analyses: where to begin, the questions, single reports, and runs."""
