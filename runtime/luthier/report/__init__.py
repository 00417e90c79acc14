"""Reports of runs: HTML pages (`page`), comparisons (`compare`), merged runs (`merge`), summaries of traces (`traces`),
and output formats (`formats`)."""
