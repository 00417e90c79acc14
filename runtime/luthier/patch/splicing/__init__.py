"""From a task to payloads at their places."""
