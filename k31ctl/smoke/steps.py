"""Which function runs which step."""

from collections.abc import Callable, Mapping
from typing import Final

from k31ctl.smoke.block_steps import blocks, expert
from k31ctl.smoke.device_step import device
from k31ctl.smoke.files_step import files
from k31ctl.smoke.identity_step import identity
from k31ctl.smoke.layer_steps import all_layers, layers
from k31ctl.smoke.repeat_step import repeat
from k31ctl.smoke.service_step import service
from k31ctl.smoke.session import Found, Session

STEPS: Final[Mapping[str, Callable[[Session], Found]]] = {
    "identity": identity,
    "files": files,
    "device": device,
    "expert": expert,
    "blocks": blocks,
    "layers": layers,
    "all": all_layers,
    "service": service,
    "repeat": repeat,
}
