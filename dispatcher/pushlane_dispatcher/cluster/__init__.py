"""Many nodes: who is there, whose slots are which, links between them, shards on other nodes."""
