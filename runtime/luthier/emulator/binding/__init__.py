"""Translation of decoded instructions to records: the function and the operands of each."""
