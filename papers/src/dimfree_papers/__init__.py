"""Five papers on SGD in high dimension: their figures and numbered statements, each with a verdict.

They are found through the entry points `dimfree.papers`: `dimfree reproduce --list`.
"""
