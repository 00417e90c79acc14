"""Splicing: turns a task into payloads at their addresses."""
