"""Which part of the model is shared."""

from undrift.blocks.personalization.adaptive import AdaptiveAggregation
from undrift.blocks.personalization.added import AddedHead
from undrift.blocks.personalization.aligned import AlignedBody
from undrift.blocks.personalization.alternating import Alternating, HeadFirst
from undrift.blocks.personalization.cores import CoreOfUpdate, Cores
from undrift.blocks.personalization.ditto import Ditto
from undrift.blocks.personalization.factors import OneFactor, PrivateFactor
from undrift.blocks.personalization.folded import Folded
from undrift.blocks.personalization.gaussian_head import GaussianHead
from undrift.blocks.personalization.latest import Latest
from undrift.blocks.personalization.mixture import Mixture
from undrift.blocks.personalization.norms import PrivateNorms
from undrift.blocks.personalization.private import Private
from undrift.blocks.personalization.ranks import LeadingRanks
from undrift.blocks.personalization.realigned import RealignedHead
from undrift.blocks.personalization.relaxed import RelaxedStart
from undrift.blocks.personalization.tuned import FrozenPart, Tuned

__all__ = [
    "AdaptiveAggregation",
    "AddedHead",
    "AlignedBody",
    "Alternating",
    "CoreOfUpdate",
    "Cores",
    "Ditto",
    "Folded",
    "FrozenPart",
    "GaussianHead",
    "HeadFirst",
    "Latest",
    "LeadingRanks",
    "Mixture",
    "OneFactor",
    "Private",
    "PrivateFactor",
    "PrivateNorms",
    "RealignedHead",
    "RelaxedStart",
    "Tuned",
]
