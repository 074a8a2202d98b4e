"""Draw and word what the web app and the report show."""
