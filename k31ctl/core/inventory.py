"""Sums over a model's tensors: how many, how large, and how much of it one token uses."""

from collections.abc import Sequence

from k31ctl.core.figure import Basis, merged
from k31ctl.core.model import Model
from k31ctl.core.tallies import once_per_object
from k31ctl.core.tensors import Group, TensorTemplate
from k31ctl.values import frozen


@frozen
class GroupTotal:
    """One line of the ledger."""

    group: Group
    num_tensors: int
    params: int
    num_bytes: int
    assumed: bool


@frozen
class Inventory:
    """The whole checkpoint in numbers.

    ``active_params`` counts what multiplies one text token: all text weights with the chosen
    experts and the output head, without the embedding table, vision and prediction layers.
    """

    num_tensors: int
    total_params: int
    active_params: int
    total_bytes: int
    groups: tuple[GroupTotal, ...]
    bases: tuple[Basis, ...]
    source: str


def ledger(templates: Sequence[TensorTemplate]) -> tuple[GroupTotal, ...]:
    """Totals by group, in the order of ``Group``; groups without tensors are left out."""
    found = []
    for group in Group:
        members = [t for t in templates if t.group is group]
        if members:
            found.append(
                GroupTotal(
                    group=group,
                    num_tensors=sum(t.num_tensors for t in members),
                    params=sum(t.num_tensors * t.params for t in members),
                    num_bytes=sum(t.total_bytes for t in members),
                    assumed=any(t.assumed for t in members),
                )
            )
    return tuple(found)


@once_per_object
def inventory(model: Model) -> Inventory:
    """The model's tensors in numbers, held against the published totals where there are any."""
    groups = ledger(model.templates)
    total_bytes = sum(g.num_bytes for g in groups)
    num_tensors = sum(g.num_tensors for g in groups)
    bases, source = _bases(model, num_tensors=num_tensors, total_bytes=total_bytes)
    return Inventory(
        num_tensors=num_tensors,
        total_params=sum(g.params for g in groups),
        active_params=active_params(model),
        total_bytes=total_bytes,
        groups=groups,
        bases=bases,
        source=source,
    )


def active_params(model: Model) -> int:
    """Parameters that multiply one text token."""
    total = 0
    for t in model.templates:
        if not t.active:
            continue
        params = t.num_tensors * t.params
        if t.num_experts and model.experts is not None:
            params = params // model.experts.num_experts * model.experts.num_experts_per_tok
        total += params
    return total


def _bases(model: Model, *, num_tensors: int, total_bytes: int) -> tuple[tuple[Basis, ...], str]:
    published = model.published
    if any(t.assumed for t in model.templates):
        return merged(Basis.DERIVED, Basis.ASSUMED), "config.json, with assumed tensor widths"
    if (
        published is not None
        and published.total_bytes == total_bytes
        and published.num_tensors in (None, num_tensors)
    ):
        return (Basis.EXACT,), f"config.json; equal to the byte to {published.source}"
    return (Basis.DERIVED,), "config.json"
