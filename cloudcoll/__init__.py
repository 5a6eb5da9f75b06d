"""CloudColl: collective communication that follows the network of your VMs."""

__version__ = "0.1.0"
