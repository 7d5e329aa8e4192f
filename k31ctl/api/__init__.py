"""The commands as functions: values in, frozen values out, a K31Error where it fails.

Names are imported from ``k31ctl`` itself, which loads the module of a name when it is asked for.
"""
