"""Results as pages: one self-contained HTML file that needs nothing from the network.

A role's files are read as typed records (`records`). A summary is made from the records (`summary`), and a page from the
summary (`study_page`). Templates of other packages extend the same frame (`frame`).
"""
