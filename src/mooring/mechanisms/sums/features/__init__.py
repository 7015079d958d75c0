"""Public feature maps, from encoded rows to vectors φ of norm one: of columns, of pictures, and random Fourier features."""
