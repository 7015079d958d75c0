"""Results as pages: one self-contained HTML file that needs nothing from the network."""
