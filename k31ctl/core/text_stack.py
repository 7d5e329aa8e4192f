"""What an architecture's own reader finds in the configuration of a text model."""

from k31ctl.core.figure import Assumption
from k31ctl.core.model import Experts, TokenMixer
from k31ctl.core.tensors import TensorTemplate
from k31ctl.values import frozen


@frozen
class TextStack:
    """The decoder of a model, its prediction layers and their tensors, without embeddings."""

    mixers: tuple[TokenMixer, ...]
    moe_layers: tuple[int, ...]
    experts: Experts
    max_position_embeddings: int
    num_mtp_layers: int
    templates: tuple[TensorTemplate, ...]
    assumptions: tuple[Assumption, ...]
