"""Files that somebody else made → plain values, within limits."""
