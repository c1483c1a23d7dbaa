"""What is learned: a data law, a model and a loss."""

from .base import Draws, Moments, Problem
from .field_problem import FieldProblem
from .inputs import Spectrum
from .local_fields import LocalFields
from .many_teachers import PowerLawTeachers
from .mixture import Mixture
from .named import PhaseRetrieval, SingleIndex
from .outputs import MultiOutput
from .random_features import PowerLawFeatures, RandomFeatures
from .spiked_tensor import SpikedTensor
from .tasks import Tasks
from .tokens import Attention, ContrastivePair, SequenceIndex
from .two_layer import MultiIndex, TwoLayer

__all__ = [
    "Attention",
    "ContrastivePair",
    "Draws",
    "FieldProblem",
    "LocalFields",
    "Mixture",
    "Moments",
    "MultiIndex",
    "MultiOutput",
    "PhaseRetrieval",
    "PowerLawFeatures",
    "PowerLawTeachers",
    "Problem",
    "RandomFeatures",
    "SequenceIndex",
    "SingleIndex",
    "Spectrum",
    "SpikedTensor",
    "Tasks",
    "TwoLayer",
]
