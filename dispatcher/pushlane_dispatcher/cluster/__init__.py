"""The nodes of a cluster: the links over which they talk to each other."""
