"""Runs: what starts them, executes them and stores their results."""
