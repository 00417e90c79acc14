"""Registers for payloads: bindings, budgets, spill slots, launch state, and copies between registers."""
