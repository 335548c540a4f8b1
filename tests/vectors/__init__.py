"""Wire vectors: data that every SDK's tests read, whatever its language.

    python -m tests.vectors          writes the .json files anew

| file | what |
|---|---|
| frames.json | frames in both directions, as JSON text |
| errors.json | error codes, close codes, and what a client does about each |
| backoff.json | base, max, attempt and random draw → delay |
| receipts.json | runs of receipts, written and read |
| scenarios.json | events → effects of a client, step by step |

The files are generated from the tables and scripts here and checked for drift by
tests/sdk/core/test_vectors.py, which also runs them against the Python core. A change in a file is
a change of behaviour: look at the diff.
"""
