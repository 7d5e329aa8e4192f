"""From a plan to launch files, and from launch files back to what they start."""
