"""Findings: errors of programs, as every check of Luthier reports them.

| module | does |
| --- | --- |
| `kinds` | kinds of findings, and the checks that look for them |
| `finding` | the records |
| `text` | findings as text |
| `sarif` | findings for continuous integration |
| `suppressions` | findings that users suppress |
| `collector` | merges equal findings |
| `calls` | calls on the host that belong to a finding |
| `floats` | causes of exceptional floats |
"""
