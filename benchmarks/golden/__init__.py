"""What the commands and calls that people rely on give today, kept to compare with later."""
