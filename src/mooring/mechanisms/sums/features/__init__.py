"""Public maps from encoded rows to features φ of norm at most one: of tables, of pictures, and random Fourier features."""
