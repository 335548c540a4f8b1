"""Storage: the truth about every message.

What was acknowledged to a producer is in here, and so is every settlement. One small interface has
several back ends, and one conformance suite runs over all of them. Storage may import
`pushlane.wire` and nothing else of the project; the dispatcher and the Spark jobs may import it.
"""
