"""Figures of the studies, drawn from result tables alone: nothing is computed anew but curves and their bands.

`draw.draw` draws a study; the other modules hold one kind of figure each.
"""
