"""What to cite for what was used."""

import importlib.metadata
from typing import Any

from .algorithms import OnlineAlgorithm, ReusedData
from .analysis import BestProtocol
from .data import DataComparison
from .errors import InvalidInput
from .limits import Limit, RescaledLimit
from .printing import in_a_line
from .problems import PowerLawTeachers, Problem, RandomFeatures
from .trajectory import Trajectory

_ENTRIES = {
    "biehl1993": r"""@article{biehl1993,
  author  = {Biehl, Michael and Schwarze, Holm},
  title   = {Learning drifting concepts with neural networks},
  journal = {Journal of Physics A: Mathematical and General},
  volume  = {26},
  pages   = {2651},
  year    = {1993},
}""",
    "saad1995": r"""@article{saad1995,
  author  = {Saad, David and Solla, Sara A.},
  title   = {On-line learning in soft committee machines},
  journal = {Physical Review E},
  volume  = {52},
  number  = {4},
  pages   = {4225--4243},
  year    = {1995},
  doi     = {10.1103/PhysRevE.52.4225},
}""",
    "tieleman2012": r"""@misc{tieleman2012,
  author       = {Tieleman, Tijmen and Hinton, Geoffrey},
  title        = {Lecture 6.5 --- {RMSProp}: Divide the gradient by a running average of its recent magnitude},
  howpublished = {Coursera: Neural Networks for Machine Learning},
  year         = {2012},
}""",
    "kingma2015": r"""@inproceedings{kingma2015,
  author        = {Kingma, Diederik P. and Ba, Jimmy},
  title         = {Adam: A method for stochastic optimization},
  booktitle     = {International Conference on Learning Representations},
  year          = {2015},
  eprint        = {1412.6980},
  archiveprefix = {arXiv},
}""",
    "bernstein2018": r"""@inproceedings{bernstein2018,
  author        = {Bernstein, Jeremy and Wang, Yu-Xiang and Azizzadenesheli, Kamyar and Anandkumar, Animashree},
  title         = {{signSGD}: Compressed optimisation for non-convex problems},
  booktitle     = {International Conference on Machine Learning},
  year          = {2018},
  eprint        = {1802.04434},
  archiveprefix = {arXiv},
}""",
    "yoshida2019": r"""@inproceedings{yoshida2019,
  author        = {Yoshida, Yuki and Okada, Masato},
  title         = {Data-dependence of plateau phenomenon in learning with neural network --- statistical mechanical
                   analysis},
  booktitle     = {Advances in Neural Information Processing Systems},
  volume        = {32},
  pages         = {1722--1730},
  year          = {2019},
  eprint        = {2001.03371},
  archiveprefix = {arXiv},
}""",
    "yoshida2019outputs": r"""@article{yoshida2019outputs,
  author  = {Yoshida, Yuki and Karakida, Ryo and Okada, Masato and Amari, Shun-ichi},
  title   = {Statistical mechanical analysis of learning dynamics of two-layer perceptron with multiple output units},
  journal = {Journal of Physics A: Mathematical and Theoretical},
  volume  = {52},
  number  = {18},
  pages   = {184002},
  year    = {2019},
  doi     = {10.1088/1751-8121/ab0669},
}""",
    "ward2019": r"""@inproceedings{ward2019,
  author        = {Ward, Rachel and Wu, Xiaoxia and Bottou, L{\'e}on},
  title         = {{AdaGrad} stepsizes: Sharp convergence over nonconvex landscapes},
  booktitle     = {International Conference on Machine Learning},
  year          = {2019},
  eprint        = {1806.01811},
  archiveprefix = {arXiv},
}""",
    "goldt2020": r"""@article{goldt2020,
  author  = {Goldt, Sebastian and M{\'e}zard, Marc and Krzakala, Florent and Zdeborov{\'a}, Lenka},
  title   = {Modeling the influence of data structure on learning in neural networks: The hidden manifold model},
  journal = {Physical Review X},
  volume  = {10},
  number  = {4},
  pages   = {041044},
  year    = {2020},
  doi     = {10.1103/PhysRevX.10.041044},
}""",
    "mignacco2021": r"""@article{mignacco2021,
  author  = {Mignacco, Francesca and Urbani, Pierfrancesco and Zdeborov{\'a}, Lenka},
  title   = {Stochasticity helps to navigate rough landscapes: comparing gradient-descent-based algorithms in the phase
             retrieval problem},
  journal = {Machine Learning: Science and Technology},
  volume  = {2},
  number  = {3},
  pages   = {035029},
  year    = {2021},
  eprint        = {2103.04902},
  archiveprefix = {arXiv},
}""",
    "foret2021": r"""@inproceedings{foret2021,
  author        = {Foret, Pierre and Kleiner, Ariel and Mobahi, Hossein and Neyshabur, Behnam},
  title         = {Sharpness-aware minimization for efficiently improving generalization},
  booktitle     = {International Conference on Learning Representations},
  year          = {2021},
  eprint        = {2010.01412},
  archiveprefix = {arXiv},
}""",
    "lee2021": r"""@inproceedings{lee2021,
  author        = {Lee, Sebastian and Goldt, Sebastian and Saxe, Andrew},
  title         = {Continual learning in the teacher-student setup: Impact of task similarity},
  booktitle     = {International Conference on Machine Learning},
  year          = {2021},
  eprint        = {2107.04384},
  archiveprefix = {arXiv},
}""",
    "benarous2022": r"""@inproceedings{benarous2022,
  author        = {Ben Arous, G{\'e}rard and Gheissari, Reza and Jagannath, Aukosh},
  title         = {High-dimensional limit theorems for {SGD}: Effective dynamics and critical scaling},
  booktitle     = {Advances in Neural Information Processing Systems},
  volume        = {35},
  year          = {2022},
  eprint        = {2206.04030},
  archiveprefix = {arXiv},
}""",
    "saglietti2022": r"""@inproceedings{saglietti2022,
  author        = {Saglietti, Luca and Sarao Mannelli, Stefano and Saxe, Andrew},
  title         = {An analytical theory of curriculum learning in teacher-student networks},
  booktitle     = {Advances in Neural Information Processing Systems},
  volume        = {35},
  year          = {2022},
  eprint        = {2106.08068},
  archiveprefix = {arXiv},
}""",
    "arnaboldi2023": r"""@misc{arnaboldi2023,
  author        = {Arnaboldi, Luca and Krzakala, Florent and Loureiro, Bruno and Stephan, Ludovic},
  title         = {Escaping mediocrity: how two-layer networks learn hard generalized linear models with {SGD}},
  year          = {2023},
  eprint        = {2305.18502},
  archiveprefix = {arXiv},
}""",
    "collinswoodfin2023": r"""@misc{collinswoodfin2023,
  author        = {Collins-Woodfin, Elizabeth and Paquette, Courtney and Paquette, Elliot and Seroussi, Inbar},
  title         = {Hitting the high-dimensional notes: An {ODE} for {SGD} learning dynamics on {GLMs} and multi-index
                   models},
  year          = {2023},
  eprint        = {2308.08977},
  archiveprefix = {arXiv},
}""",
    "loureiro2023": r"""@misc{loureiro2023,
  author       = {Loureiro, Bruno},
  title        = {Dimension-free limits of {SGD} for two-layers neural networks (and some applications)},
  howpublished = {Slides of a talk at ``Statistical Physics and Machine Learning back together again''},
  month        = aug,
  year         = {2023},
}""",
    "collinswoodfin2024": r"""@inproceedings{collinswoodfin2024,
  author        = {Collins-Woodfin, Elizabeth and Seroussi, Inbar and Garc{\'i}a Malaxechebarr{\'i}a, Bego{\~n}a and
                   Mackenzie, Andrew W. and Paquette, Elliot and Paquette, Courtney},
  title         = {The high line: Exact risk and learning rate curves of stochastic adaptive learning rate algorithms},
  booktitle     = {Advances in Neural Information Processing Systems},
  year          = {2024},
  eprint        = {2405.19585},
  archiveprefix = {arXiv},
}""",
    "xiao2024": r"""@misc{xiao2024,
  author        = {Xiao, Ke Liang and Marshall, Noah and Agarwala, Atish and Paquette, Elliot},
  title         = {Exact risk curves of {signSGD} in high-dimensions: Quantifying preconditioning and noise-compression
                   effects},
  year          = {2024},
  eprint        = {2411.12135},
  archiveprefix = {arXiv},
}""",
    "worschech2024": r"""@misc{worschech2024,
  author        = {Worschech, Roman and Rosenow, Bernd},
  title         = {Analyzing neural scaling laws in two-layer networks with power-law data spectra},
  year          = {2024},
  eprint        = {2410.09005},
  archiveprefix = {arXiv},
}""",
    "arnaboldi2024": r"""@misc{arnaboldi2024,
  author        = {Arnaboldi, Luca and Dandi, Yatin and Krzakala, Florent and Pesce, Luca and Stephan, Ludovic},
  title         = {Repetita iuvant: Data repetition allows {SGD} to learn high-dimensional multi-index functions},
  year          = {2024},
  eprint        = {2405.15459},
  archiveprefix = {arXiv},
}""",
    "defazio2024": r"""@inproceedings{defazio2024,
  author        = {Defazio, Aaron and Yang, Xingyu Alice and Mehta, Harsh and Mishchenko, Konstantin and Khaled, Ahmed
                   and Cutkosky, Ashok},
  title         = {The road less scheduled},
  booktitle     = {Advances in Neural Information Processing Systems},
  year          = {2024},
  eprint        = {2405.15682},
  archiveprefix = {arXiv},
}""",
    "cui2024": r"""@inproceedings{cui2024,
  author        = {Cui, Hugo and Behrens, Freya and Krzakala, Florent and Zdeborov{\'a}, Lenka},
  title         = {A phase transition between positional and semantic learning in a solvable model of dot-product
                   attention},
  booktitle     = {Advances in Neural Information Processing Systems},
  year          = {2024},
  eprint        = {2402.03902},
  archiveprefix = {arXiv},
}""",
    "troiani2025": r"""@inproceedings{troiani2025,
  author        = {Troiani, Emanuele and Cui, Hugo and Dandi, Yatin and Krzakala, Florent and Zdeborov{\'a}, Lenka},
  title         = {Fundamental limits of learning in sequence multi-index models and deep attention networks:
                   High-dimensional asymptotics and sharp thresholds},
  booktitle     = {International Conference on Machine Learning},
  volume        = {267},
  pages         = {60147--60182},
  year          = {2025},
  eprint        = {2502.00901},
  archiveprefix = {arXiv},
}""",
    "arnaboldi2025": r"""@inproceedings{arnaboldi2025,
  author        = {Arnaboldi, Luca and Loureiro, Bruno and Stephan, Ludovic and Krzakala, Florent and
                   Zdeborov{\'a}, Lenka},
  title         = {Asymptotics of {SGD} in sequence-single index models and single-layer attention networks},
  booktitle     = {Advances in Neural Information Processing Systems},
  volume        = {38},
  year          = {2025},
  eprint        = {2506.02651},
  archiveprefix = {arXiv},
}""",
    "paquette2024": r"""@inproceedings{paquette2024,
  author        = {Paquette, Elliot and Paquette, Courtney and Xiao, Lechao and Pennington, Jeffrey},
  title         = {4+3 phases of compute-optimal neural scaling laws},
  booktitle     = {Advances in Neural Information Processing Systems},
  volume        = {37},
  year          = {2024},
  eprint        = {2405.15074},
  archiveprefix = {arXiv},
}""",
    "ren2025": r"""@misc{ren2025,
  author        = {Ren, Yunwei and Nichani, Eshaan and Wu, Denny and Lee, Jason D.},
  title         = {Emergence and scaling laws in {SGD} learning of shallow neural networks},
  year          = {2025},
  eprint        = {2504.19983},
  archiveprefix = {arXiv},
}""",
    "benarous2025": r"""@misc{benarous2025,
  author        = {Ben Arous, G{\'e}rard and Erdogdu, Murat A. and Vural, Nuri Mert and Wu, Denny},
  title         = {Learning quadratic neural networks in high dimensions: {SGD} dynamics and scaling laws},
  year          = {2025},
  eprint        = {2508.03688},
  archiveprefix = {arXiv},
}""",
    "ferbach2025": r"""@misc{ferbach2025,
  author        = {Ferbach, Damien and Everett, Katie and Gidel, Gauthier and Paquette, Elliot and Paquette, Courtney},
  title         = {Dimension-adapted momentum outscales {SGD}},
  year          = {2025},
  eprint        = {2505.16098},
  archiveprefix = {arXiv},
}""",
    "saad1997": r"""@article{saad1997,
  author  = {Saad, David and Rattray, Magnus},
  title   = {Globally optimal parameters for on-line learning in multilayer neural networks},
  journal = {Physical Review Letters},
  volume  = {79},
  number  = {13},
  pages   = {2578--2581},
  year    = {1997},
  doi     = {10.1103/PhysRevLett.79.2578},
}""",
    "bordelon2026": r"""@misc{bordelon2026,
  author        = {Bordelon, Blake and Mori, Francesco},
  title         = {Theory of optimal learning rate schedules and scaling laws for a random feature model},
  year          = {2026},
  eprint        = {2602.04774},
  archiveprefix = {arXiv},
}""",
    "bocchi2026": r"""@misc{bocchi2026,
  author        = {Bocchi, Dario and Regimbeau, Theotime and Lucibello, Carlo and Saglietti, Luca and
                   Cammarota, Chiara},
  title         = {Escape dynamics and implicit bias of one-pass {SGD} in overparameterized quadratic networks},
  year          = {2026},
  eprint        = {2604.03068},
  archiveprefix = {arXiv},
}""",
}

# Of inputs with a spectrum, whatever is learned.
_OF_SPECTRUM = ("yoshida2019", "goldt2020", "collinswoodfin2023", "worschech2024")


def cite(*objects: Any) -> str:
    """BibTeX entries of the papers behind the given objects, and of dimfree itself.

    **Arguments:**

    - `objects`: problems, random features, algorithms, limits, trajectories and results of [`from_data`] and
      [`best_protocol`], in any order.

    **Returns:** BibTeX, one entry after the other.

    ??? example
        >>> import dimfree
        >>> "saad1995" in dimfree.cite(dimfree.TwoLayer(width=2, activation="erf"))
        True
    """
    keys = dict.fromkeys(key for item in objects for key in _sources(item))
    missing = [key for key in keys if key not in _ENTRIES]
    if missing:
        raise InvalidInput(
            f"A problem names the sources {', '.join(missing)}, which have no BibTeX entry in dimfree; "
            f"it has {', '.join(_ENTRIES)}."
        )
    return "\n\n".join([_own_entry(), *(_ENTRIES[key] for key in _ENTRIES if key in keys)])


def _sources(item: Any) -> tuple[str, ...]:
    if isinstance(item, RandomFeatures | PowerLawTeachers):
        return item.sources
    known = Problem | OnlineAlgorithm | ReusedData | Limit | RescaledLimit | Trajectory | DataComparison | BestProtocol
    if isinstance(item, known):
        has_spectrum = getattr(getattr(item, "problem", item), "spectrum", None) is not None
        return (*item.sources, *(_OF_SPECTRUM if has_spectrum else ()))
    called = f" Call it first: {item.__name__}(...)." if isinstance(item, type) or callable(item) else ""
    raise InvalidInput(
        f"cite was given {in_a_line(item)}; pass problems, algorithms, limits (dimfree.ode(...)) or trajectories."
        f"{called}"
    )


def _own_entry() -> str:
    return f"""@misc{{dimfree,
  author = {{{{The dimfree developers}}}},
  title  = {{dimfree: exact, dimension-free descriptions of stochastic gradient descent in high dimension}},
  note   = {{Version {importlib.metadata.version("dimfree")}}},
}}"""
