"""Nothing but the file for `spark-submit`: Python looks for modules beside it first, and a `queue`
there would be taken for Python's own."""
