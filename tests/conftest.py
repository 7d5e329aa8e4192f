"""What all tests share: properties are judged by what holds, not by how busy the machine is.

What puts a test run into the background has it ignore interrupts or the end of its terminal, and
so would every process that a test starts and signals.
"""

import gc
import signal

from hypothesis import settings

# ``pytest --hypothesis-profile thorough`` looks further than every run of all tests can.
settings.register_profile("thorough", deadline=None, max_examples=1000)
settings.register_profile("unhurried", deadline=None, max_examples=50)
settings.load_profile("unhurried")

for number, usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


def pytest_collection_finish() -> None:
    """Leave what importing all tests made out of every later collection of garbage."""
    gc.collect()
    gc.freeze()
