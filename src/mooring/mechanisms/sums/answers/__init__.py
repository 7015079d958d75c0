"""What is read off one opened total: tables, regressions, survival curves, associations and synthetic rows."""
