"""What people share instead of rotated rows or secure sums, attacked on the same rows and measured on the same scale."""
