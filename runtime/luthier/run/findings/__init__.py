"""What checks of a program's memory find: findings, what leaves them out, what they are written as."""
