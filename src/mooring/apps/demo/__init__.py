"""The demonstration: twenty-five participants with forty handwritten digits each, from uploads to one model."""
