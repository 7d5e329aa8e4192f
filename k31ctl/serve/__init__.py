"""From a plan to the files that start it: settings with reasons, then one format each."""
