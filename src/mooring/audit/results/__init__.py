"""What an audit returns: figures at each operating point, sentences on them, and the decision that follows."""
