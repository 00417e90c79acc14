"""The code of one kernel: decoded text, what control reaches, its blocks, and where nothing may be inserted."""
