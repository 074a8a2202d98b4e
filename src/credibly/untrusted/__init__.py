"""Read files from untrusted sources, within limits."""
