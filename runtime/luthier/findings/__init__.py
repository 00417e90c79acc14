"""Findings: what programs do wrong, as every check of Luthier gives it.

| module | does |
| --- | --- |
| `kinds` | kinds of findings, and the checks that look for them |
| `finding` | the records |
| `text` | findings for people |
| `sarif` | findings for continuous integration |
| `suppressions` | findings that users leave out |
| `collector` | keeps equal findings as one |
| `calls` | calls on the host that a finding is about |
| `floats` | causes of exceptional floats |
"""
