"""Published figures and claims, each with a verdict; papers are plugins.

A paper is an installed package that names itself in the entry-point group `dimfree.papers`. It has a file `paper.toml`
with its title and those of its figures, a function for each figure, which takes a size and returns a
[`Reproduction`], and a function `statements`, which returns a tuple of [`Claim`]s.

- `Paper`: what is known of a paper; `find(name)` gives one, `shelf()` all.
- `Size`: of a figure, `"quick"` or `"full"`.
"""

from .shelf import Paper, Size, find, shelf

__all__ = ["Paper", "Size", "find", "shelf"]
