"""The way from a task to payloads at their places."""
