"""What one instruction does: to control, to registers, to lanes."""
