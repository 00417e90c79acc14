"""Looking at a kernel while it runs: debugger, traces, checks, counts, coverage."""
