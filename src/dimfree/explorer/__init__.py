"""The explorer in the browser: choose a problem, move a slider, see what SGD does.

- `settings`: what can be chosen.
- `computations`: from settings to results, without any picture.
- `background`: computations in threads of their own, so that nothing waits for them.
- `links`: settings as an address, and back.
- `pictures`: from results to pictures and files.
- `scripts`: from settings to a script that makes the same picture by itself.
- `page`: a page that moves without Python.
- `app`: the notebook that shows all of it; `serve`: what starts it; `guard`: who may ask it.
"""

from .serve import explore

__all__ = ["explore"]
