"""Speed as ratios: the library against the bare engine, and against what one would write by hand.

`python -m benchmarks` from the root of the repository measures all of them and prints a table; `--quick` a few of them
in less than a minute. A ratio is the time of the library over that of the alternative, on warm code, both timed in turn
in one run: less is better, 1 is equal.
"""
