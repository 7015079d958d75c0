"""The general total: products of all pairs of columns, from which every answer of a study follows."""
