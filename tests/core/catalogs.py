"""The packaged catalogs, loaded once for the tests of the core."""

from k31ctl.catalog import Store, default_folders
from k31ctl.catalog.flags import find_flags
from k31ctl.core.launch import Launch
from k31ctl.core.launch_form import find_call
from k31ctl.core.read_launch import read_launch

STORE = Store(default_folders())
ENGINES = ("vllm", "sglang", "tokenspeed")
CATALOGS = {engine: find_flags(STORE, engine).catalog for engine in ENGINES}


def launch(*words: str, **environment: str) -> Launch:
    """Read a command of one of the engines with its newest catalog."""
    call = find_call(words)
    assert call is not None
    return read_launch(words, call, CATALOGS[call.engine], environment=environment)


def problems(*words: str, **environment: str) -> list[tuple[str, str]]:
    """The kind and the subject of everything wrong with a command."""
    return [(p.problem.value, p.subject) for p in launch(*words, **environment).problems]
