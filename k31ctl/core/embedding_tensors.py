"""Which tensors stand outside the layers: embedding, final norm and output head."""

from dataclasses import replace

from k31ctl.core.config_fields import ConfigFields
from k31ctl.core.tensor_block import TensorBlock
from k31ctl.core.tensors import Group, Place, Shard, TensorTemplate


def embedding_and_head(
    text: ConfigFields, fields: ConfigFields, *, prefix: str, hidden: int
) -> list[TensorTemplate]:
    """Embedding, final norm and output head; tied embeddings are refused."""
    for owner in (text, fields):
        if owner.flag("tie_word_embeddings", default=False):
            raise owner.fail("tie_word_embeddings", "is true, which is not modelled")
    vocab = text.integer("vocab_size", high=1 << 24)
    block = TensorBlock(stem=prefix, layers=())
    tables = {
        Group.EMBEDDING: ("model.embed_tokens.weight", Place.FIRST),
        Group.LM_HEAD: ("lm_head.weight", Place.LAST),
    }
    found = [output_vector(prefix, "model.norm.weight", (hidden,))]
    for group, (name, place) in tables.items():
        table = block.tensor(name, (vocab, hidden), (group, Shard.VOCABULARY))
        found.append(replace(table, place=place, active=group is Group.LM_HEAD))
    return found


def output_vector(prefix: str, name: str, shape: tuple[int, ...]) -> TensorTemplate:
    """A small tensor that the last stage applies before the output head."""
    block = TensorBlock(stem=prefix, layers=())
    return replace(block.tensor(name, shape, (Group.OUTPUT, Shard.REPLICATED)), place=Place.LAST)
