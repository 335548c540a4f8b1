"""Looking into queues: peek, explain, redrive, and what drops their archived buckets."""
