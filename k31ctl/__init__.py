"""Plan, fetch, serve and measure Kimi K3.1 Pro and its relatives on your own GPUs.

Nearly every command is a function here as well: ``from k31ctl import plan``. What a name needs is
imported when the name is, so that the package itself costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from k31ctl.api.catalogue import check_profiles, profile, profiles
    from k31ctl.api.checkpoints import inspect, licence, verify, write_tiny
    from k31ctl.api.fetching import download, download_plan
    from k31ctl.api.launching import launch
    from k31ctl.api.linting import lint
    from k31ctl.api.machine import doctor, smoke_test
    from k31ctl.api.measuring import conformance, measure
    from k31ctl.api.planning import cold_start, disaggregate, plan, search
    from k31ctl.api.results import gate, result_of, write_calibration
    from k31ctl.api.runs import calibrate, compare, diff, validate
    from k31ctl.errors import (
        EndpointError,
        GateError,
        InputError,
        K31Error,
        NotProvenError,
        ProfileError,
        RefusedError,
        UsageError,
    )

__version__ = "0.1.0"

_HOMES: Final = {
    "api.catalogue": ("check_profiles", "profile", "profiles"),
    "api.checkpoints": ("inspect", "licence", "verify", "write_tiny"),
    "api.fetching": ("download", "download_plan"),
    "api.launching": ("launch",),
    "api.linting": ("lint",),
    "api.machine": ("doctor", "smoke_test"),
    "api.measuring": ("conformance", "measure"),
    "api.planning": ("cold_start", "disaggregate", "plan", "search"),
    "api.results": ("gate", "result_of", "write_calibration"),
    "api.runs": ("calibrate", "compare", "diff", "validate"),
    "errors": (
        "EndpointError",
        "GateError",
        "InputError",
        "K31Error",
        "NotProvenError",
        "ProfileError",
        "RefusedError",
        "UsageError",
    ),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "EndpointError",
    "GateError",
    "InputError",
    "K31Error",
    "NotProvenError",
    "ProfileError",
    "RefusedError",
    "UsageError",
    "__version__",
    "calibrate",
    "check_profiles",
    "cold_start",
    "compare",
    "conformance",
    "diff",
    "disaggregate",
    "doctor",
    "download",
    "download_plan",
    "gate",
    "inspect",
    "launch",
    "licence",
    "lint",
    "measure",
    "plan",
    "profile",
    "profiles",
    "result_of",
    "search",
    "smoke_test",
    "validate",
    "verify",
    "write_calibration",
    "write_tiny",
]


def __getattr__(name: str) -> Any:
    """Import the home of a public name when it is first asked for."""
    if name not in _HOME_OF:
        raise AttributeError(f"module 'k31ctl' has no attribute {name!r}")
    found = getattr(import_module(f"k31ctl.{_HOME_OF[name]}"), name)
    if _HOME_OF[name] != "errors":
        from k31ctl.api.arguments import checked  # noqa: PLC0415  the package loads nothing

        found = checked(found)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return the public names, for those who look around."""
    return [*__all__]
