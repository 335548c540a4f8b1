"""The audit: recorded histories against the promises, by the checker's own rules.

`lines` reads histories, `families` cuts each into parts that can be judged apart, `judging` has the
checker judge them, `report` puts their verdicts together. It agrees with the checker because it is
the checker: what Spark adds is that the parts of a history are judged beside each other, and that
no machine needs to hold a whole one.
"""
