"""Links between nodes: how they are made, proven, framed and kept."""
