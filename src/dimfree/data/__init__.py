"""SGD on a user's own data, beside what theory says of Gaussian inputs with the same covariance."""

from .comparison import DataComparison, from_data

__all__ = ["DataComparison", "from_data"]
