"""Reports of runs: the HTML pages (`page`), the comparison of two (`compare`), the merge of several (`merge`), sums
over traces (`traces`), and what reports can be written as (`formats`)."""
