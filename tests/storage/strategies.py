"""Hypothesis strategies for what is stored."""

from hypothesis import strategies as st

from pushlane_storage.bucket import BucketKey
from pushlane_storage.message import Dead, Message
from pushlane_storage.segment import Segment

texts = st.text(max_size=12)
times = st.integers(0, 1 << 45)
maybe_text = st.none() | texts
deads = st.builds(Dead, texts, texts, texts, st.integers(0, 100), maybe_text, times)
messages = st.builds(
    Message,
    body=st.binary(max_size=40),
    published_at=times,
    is_data=st.booleans(),
    key=maybe_text,
    headers=st.none() | st.dictionaries(texts, texts, max_size=3),
    dedup=maybe_text,
    producer=maybe_text,
    producer_seq=st.integers(0, (1 << 53) - 1),
    not_before=times,
    expires_at=times,
    event_at=st.none() | times,
    dead=st.none() | deads,
)
BUCKET = BucketKey(4, 3, 1_700_000_000_000)
segments = st.builds(
    Segment,
    st.just(BUCKET),
    st.integers(3 << 40, 4 << 40),
    st.lists(messages, min_size=1, max_size=4),
)
