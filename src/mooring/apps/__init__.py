"""What people run: the command line, the report, the experiments."""
