"""The demonstration: twenty participants with forty handwritten digits each, through the real commands."""
