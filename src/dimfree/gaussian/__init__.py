"""Expectations over Gaussian local fields.

Closed forms first: `integrals` says what an activation with closed forms offers, and `erf`, `polynomial`, `relu` and
`piecewise_linear` offer it. `activations` finds the one that a user names, or tries a function of the user's own.
Everything else is a sum over points: `rules` holds the rules and how one is chosen (`half_range` one more, for kinks),
`grids` the even grid that follows the State, `resolution` how fine it has to be. `means` takes an expectation by any
rule, with derivatives that are right; `products` does so for a network, two fields at a time, and `one_field` for what
a single neuron sees. `two_relus` and `events` are for mixtures: losses of one or two ReLUs, and probabilities. Beside
these stand `hermite` (coefficients), `probing` (a user's function is tried before it is used), `factor` (of a
covariance that may be singular), and random numbers for simulations: `random_numbers` for all steps, `chi_square` for
the start.
"""
