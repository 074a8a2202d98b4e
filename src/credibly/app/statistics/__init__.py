"""Numbers and words that the report, the web app and notebooks share."""
