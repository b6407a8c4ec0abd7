"""Hostile input: Hypothesis in `make test`, atheris for hours in `make fuzz`, and the inputs that they found as cases."""
