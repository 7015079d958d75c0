"""The command `mooring reproduce`."""
