"""What the commands do, as functions that take a reporter for progress and words."""
