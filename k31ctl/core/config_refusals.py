"""Fields that would change the tensors or the cache in ways that are not modelled."""

from k31ctl.core.config_fields import MISSING, ConfigFields

_MUST_BE_ABSENT = ("layer_types", "sliding_window", "index_topk_freq")


def refuse_unmodelled(
    text: ConfigFields, fields: ConfigFields, *, activations: tuple[str, ...]
) -> None:
    """Refuse an activation, a layer pattern or a cache scheme that the inventory does not know."""
    activation = text.raw("hidden_act")
    if activation is not MISSING and activation not in activations:
        raise text.fail("hidden_act", f"is {str(activation)[:40]!r}, which is not modelled")
    places = [text, fields]
    places += [
        p for p in (text.child_or_none("dsa_config"), fields.child_or_none("dsa_config")) if p
    ]
    for place in places:
        for name in _MUST_BE_ABSENT:
            if place.raw(name) is not MISSING:
                raise place.fail(name, "is set, which is not modelled")
        quantisation = place.child_or_none("quantization_config")
        if quantisation is not None and quantisation.raw("kv_cache_scheme") is not MISSING:
            raise quantisation.fail("kv_cache_scheme", "is set, which is not modelled")
    architectures = fields.strings("architectures")
    if len(architectures) > 1:
        raise fields.fail("architectures", "names more than one, which is not modelled")
