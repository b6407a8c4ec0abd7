"""What all families share: types, errors, durations, values, limits. Standard library only; no clock, no I/O."""
