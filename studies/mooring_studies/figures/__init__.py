"""Figures of the studies, drawn from result tables alone: nothing is computed anew but curves and their bands.

`study_figures.draw_figures` draws a study. `terms`, `readings`, `fits`, `chart` and `frontier` hold what figures share; the
other modules hold one kind of figure each.
"""
