"""The devices that a model goes to, and the type that it computes in, each with the reason."""

from collections.abc import Sequence
from typing import Final

import torch

from k31ctl.core.stages import Place
from k31ctl.errors import InputError

DTYPES: Final = {"float32": torch.float32, "bf16": torch.bfloat16}


def chosen_devices(asked: str) -> tuple[tuple[torch.device, ...], str]:
    """The devices in the order of the layers, and why; raises InputError for one not here.

    A device that is named several times takes several stages.
    """
    names = [name for name in asked.split(",") if name]
    if names and all(name == "cpu" for name in names):
        return (torch.device("cpu"),) * len(names), f"{asked}: asked for"
    if not torch.cuda.is_available():
        if names:
            raise InputError(
                f"torch {torch.__version__} sees no CUDA device",
                where=f"--device {asked[:80]}",
                remedy="use --device cpu, or a torch that was built for this driver",
            )
        return (torch.device("cpu"),), f"cpu: torch {torch.__version__} sees no CUDA device"
    try:
        found = [int(name.partition(":")[2] or 0) for name in names]
        found = found or list(range(torch.cuda.device_count()))
        kinds = {torch.cuda.get_device_name(index): None for index in found}
    except (ValueError, AssertionError, RuntimeError):
        raise InputError(
            "no such device",
            where=f"--device {asked[:80]}",
            remedy="use cpu, or one or several of cuda:0, cuda:1 and so on",
        ) from None
    devices = tuple(torch.device("cuda", index) for index in found)
    listed = ", ".join(str(device) for device in devices)
    return devices, f"{listed} ({', '.join(kinds)}): {'asked for' if asked else 'there'}"


def chosen_type(asked: str, device: torch.device) -> tuple[torch.dtype, str]:
    """The type that is computed in, and why."""
    if asked:
        return DTYPES[asked], f"{asked}: asked for"
    if device.type == "cpu":
        return (
            torch.float32,
            "float32: exact on a CPU, and as fast as bf16 without its instructions",
        )
    return torch.bfloat16, "bf16: the release's own type"


def places(devices: Sequence[torch.device], *, host_free_bytes: int) -> tuple[Place, ...]:
    """Memory that nobody uses now, for one stage of each: stages of one device get equal parts."""
    return tuple(
        Place(
            device=str(device),
            free_bytes=_free_bytes(device, host_free_bytes) // devices.count(device),
        )
        for device in devices
    )


def _free_bytes(device: torch.device, host_free_bytes: int) -> int:
    return host_free_bytes if device.type == "cpu" else int(torch.cuda.mem_get_info(device)[0])


def type_name(dtype: torch.dtype) -> str:
    """A type as it is asked for."""
    return next(name for name, each in DTYPES.items() if each == dtype)
