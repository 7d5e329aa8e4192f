"""What all tests share: properties are judged by what holds, not by how busy the machine is.

A shell that puts a test run into the background has it ignore interrupts, and so would every
process that a test starts and interrupts.
"""

import signal

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
