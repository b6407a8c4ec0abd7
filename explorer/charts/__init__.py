"""Geometry of charts, which templates draw as SVG, and what people changed that a chart marks."""
