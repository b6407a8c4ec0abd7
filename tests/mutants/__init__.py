"""Mutation tests: deliberate faults, one at a time, that the tests named beside them have to notice (`make mutants`)."""
