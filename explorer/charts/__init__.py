"""Geometry of charts, which templates draw as SVG, and what people changed that a chart marks.

scale, axis, labels and series are what the kinds of charts are made of: `columns`, `rows` and `sparklines`.
"""
