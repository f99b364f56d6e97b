"""What a differentially private run guarantees: the accounting, and the statement that is written with its results."""

from undrift.privacy.accounting import calibrate_noise, gaussian_delta, gaussian_epsilon, sampled_epsilon
from undrift.privacy.canaries import CanaryBound, bound_epsilon
from undrift.privacy.examples import ExampleReleases, example_epsilons
from undrift.privacy.inversion import Inversion, input_errors, invert_gradient, invert_linear
from undrift.privacy.losses import loss_epsilon
from undrift.privacy.membership import Membership, compare_losses
from undrift.privacy.noise_plan import NoisePlan, plan_noise
from undrift.privacy.statement import Statement, rounds_within, statement

__all__ = [
    "CanaryBound",
    "ExampleReleases",
    "Inversion",
    "Membership",
    "NoisePlan",
    "Statement",
    "bound_epsilon",
    "calibrate_noise",
    "compare_losses",
    "example_epsilons",
    "gaussian_delta",
    "gaussian_epsilon",
    "input_errors",
    "invert_gradient",
    "invert_linear",
    "loss_epsilon",
    "plan_noise",
    "rounds_within",
    "sampled_epsilon",
    "statement",
]
