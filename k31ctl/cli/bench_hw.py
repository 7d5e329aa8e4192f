"""``k31ctl bench hw``: what this machine reaches, as a hardware profile."""

from pathlib import Path
from typing import Annotated

import typer

from k31ctl import units
from k31ctl.cli.options import JsonOpt, said
from k31ctl.errors import UsageError

_DISK_BYTES = 512 * 2**20
_LEAST_BYTES = 64 * 2**20

OutOpt = Annotated[
    Path, typer.Option("--out", metavar="FILE", help="Where the profile goes; its name is its id.")
]
DiskOpt = Annotated[
    Path,
    typer.Option(
        "--disk", metavar="DIR", help="The disk to measure: a file is written here and removed."
    ),
]
SizeOpt = Annotated[
    int | None,
    typer.Option(
        "--disk-size",
        metavar="SIZE",
        parser=said("--disk-size", units.parse_bytes),
        help="Of that file; 512MiB.",
    ),
]
TorchOpt = Annotated[
    bool, typer.Option("--torch/--no-torch", help="Ask torch for GPUs and bf16 products.")
]


def hw(
    out: OutOpt = Path("this-host.yaml"),
    disk: DiskOpt = Path(),
    disk_size: SizeOpt = None,
    *,
    torch: TorchOpt = True,
    as_json: JsonOpt = False,
) -> None:
    """Measure memory, disk, links and matrix products into a profile that plan --on takes.

    Takes a minute; other work on the machine makes it look slower than it is.

    k31ctl bench hw --out this-host.yaml
    """
    from datetime import UTC, datetime

    from k31ctl.core.measured_host import gpu_node, processor_node
    from k31ctl.host.host_rates import host_rates
    from k31ctl.report.files import require_writable
    from k31ctl.report.hardware import show_hardware, told

    num_bytes = _DISK_BYTES if disk_size is None else disk_size
    if num_bytes < _LEAST_BYTES:
        raise UsageError(
            f"{num_bytes} bytes are too few to time a disk by",
            where="--disk-size",
            remedy="give at least 64MiB",
        )
    if out.suffix != ".yaml" or not out.stem:
        raise UsageError(
            f"{str(out)[:60]!r} is no name of a profile",
            where="--out",
            remedy="give a file that ends in .yaml, such as this-host.yaml",
        )
    require_writable(out)
    rates = told(host_rates(disk, num_bytes=num_bytes, asks_torch=torch))
    today = datetime.now(UTC).date()
    if rates.gpus is None:
        node = processor_node(rates, node_id=out.stem, today=today)
    else:
        from k31ctl.api.hardware import THIS_MACHINE, node_named
        from k31ctl.catalog.store import Store, default_folders

        known = node_named(Store(default_folders()), THIS_MACHINE)
        node = gpu_node(known, rates, node_id=out.stem, today=today)
    show_hardware(node, rates, out=out, as_json=as_json)
