"""Draft a study, enrol its members, make its public projection."""
