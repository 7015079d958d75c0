"""Results as pages: one self-contained HTML file that needs nothing from the network.

A role's files become typed records (`records`), these a summary (`summary`), and this a page (`study_page`). Templates of
other packages extend the same frame (`frame`).
"""
