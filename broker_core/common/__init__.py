"""Types, errors, durations, values and limits shared by all families. Standard library only; no clock, no I/O."""
