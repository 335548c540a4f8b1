"""The table of all operations."""

from __future__ import annotations

from pushlane_gateway.auth.rule import Action
from pushlane_gateway.http import health, messages, page, publish, queues, receive, settle, tokens
from pushlane_gateway.http.objects import (
    AckBody,
    ConsumersAnswer,
    DeleteQuery,
    Explanation,
    ExtendBody,
    ListQuery,
    MessagesAnswer,
    NackBody,
    Nothing,
    PeekQuery,
    PublishAnswer,
    PublishBody,
    QueueBody,
    QueueChanges,
    QueueObject,
    QueuePage,
    ReceiveBody,
    RedriveAnswer,
    RedriveBody,
    SettleAnswer,
    Stats,
    StoredMessage,
    TokenAnswer,
    TokenBody,
)
from pushlane_gateway.http.operation import Operation

QUEUE = "/v1/queues/{queue}"
MESSAGE = QUEUE + "/messages/{id}"
ANY = queues.ANY
READ: tuple[Action, ...] = ("consume", "manage")

# fmt: off
OPERATIONS: tuple[Operation, ...] = (
    # Messages
    Operation(name="publish", method="POST", path=QUEUE + "/messages", handler=publish.publish,
        summary="Publish messages.", rights=("publish",),
        body=PublishBody, answer=PublishAnswer, headers=("Idempotency-Key",)),
    Operation(name="receive", method="POST", path=QUEUE + "/receive", handler=receive.receive,
        summary="Receive messages, waiting for the first.", rights=("consume",),
        body=ReceiveBody, answer=MessagesAnswer),
    Operation(name="ack", method="POST", path=QUEUE + "/ack", handler=settle.ack,
        summary="Say that messages are done.", rights=("consume",),
        body=AckBody, answer=SettleAnswer),
    Operation(name="nack", method="POST", path=QUEUE + "/nack", handler=settle.nack,
        summary="Say that messages failed.", rights=("consume",),
        body=NackBody, answer=SettleAnswer),
    Operation(name="extend", method="POST", path=QUEUE + "/extend", handler=settle.extend,
        summary="Keep messages for longer.", rights=("consume",),
        body=ExtendBody, answer=SettleAnswer),
    Operation(name="peek", method="GET", path=QUEUE + "/peek", handler=messages.peek,
        summary="Look at the next messages without taking them.", rights=READ,
        query=PeekQuery, answer=MessagesAnswer),
    Operation(name="get_message", method="GET", path=MESSAGE, handler=messages.get,
        summary="Look at a message that has not ended.", rights=READ, answer=StoredMessage),
    Operation(name="cancel_message", method="DELETE", path=MESSAGE, handler=messages.cancel,
        summary="Cancel a delayed message.", rights=("manage",), answer=Nothing),
    Operation(name="explain", method="GET", path=MESSAGE + "/explain", handler=messages.explain,
        summary="Say where a message stands, since when, and why.", rights=ANY,
        answer=Explanation),
    # Queues
    Operation(name="list_queues", method="GET", path="/v1/queues", handler=queues.list_queues,
        summary="List queues in order of name.", query=ListQuery, answer=QueuePage),
    Operation(name="put_queue", method="PUT", path=QUEUE, handler=queues.put,
        summary="Make a queue, or replace its configuration.", rights=("manage",),
        body=QueueBody, answer=QueueObject, headers=("If-Match", "If-None-Match")),
    Operation(name="patch_queue", method="PATCH", path=QUEUE, handler=queues.patch,
        summary="Change some of a queue's configuration.", rights=("manage",),
        body=QueueChanges, answer=QueueObject, headers=("If-Match",)),
    Operation(name="get_queue", method="GET", path=QUEUE, handler=queues.get,
        summary="Show a queue's configuration.", rights=ANY, answer=QueueObject),
    Operation(name="delete_queue", method="DELETE", path=QUEUE, handler=queues.delete,
        summary="Delete a queue with all its messages.", rights=("manage",),
        query=DeleteQuery, answer=Nothing),
    Operation(name="stats", method="GET", path=QUEUE + "/stats", handler=queues.stats,
        summary="Count a queue's messages by state.", rights=ANY, answer=Stats),
    Operation(name="consumers", method="GET", path=QUEUE + "/consumers", handler=queues.consumers,
        summary="List who consumes a queue.", rights=("manage",), answer=ConsumersAnswer),
    Operation(name="purge", method="POST", path=QUEUE + "/purge", handler=queues.purge,
        summary="Drop all messages that nobody holds.", rights=("manage",),
        body=Nothing, answer=Nothing),
    Operation(name="pause", method="POST", path=QUEUE + "/pause", handler=queues.pause,
        summary="Deliver nothing until it is resumed.", rights=("manage",),
        body=Nothing, answer=QueueObject),
    Operation(name="resume", method="POST", path=QUEUE + "/resume", handler=queues.resume,
        summary="Deliver again.", rights=("manage",), body=Nothing, answer=QueueObject),
    Operation(name="redrive", method="POST", path=QUEUE + "/redrive", handler=queues.redrive,
        summary="Send dead letters back to where they came from.", rights=("manage",),
        body=RedriveBody, answer=RedriveAnswer),
    # The server
    Operation(name="create_token", method="POST", path="/v1/tokens", handler=tokens.create,
        summary="Make a short-lived token with some of your own rights.",
        body=TokenBody, answer=TokenAnswer),
    Operation(name="healthz", method="GET", path="/healthz", handler=health.healthz,
        summary="Say whether the process lives.", public=True, query=None,
        content="text/plain"),
    Operation(name="readyz", method="GET", path="/readyz", handler=health.readyz,
        summary="Say whether new clients are welcome.", public=True, query=None,
        content="text/plain"),
    Operation(name="metrics", method="GET", path="/metrics", handler=health.metrics,
        summary="Show metrics, in Prometheus' text format.", query=None, content="text/plain"),
    Operation(name="openapi", method="GET", path="/openapi.json", handler=page.document,
        summary="Describe this API for programs.", public=True, query=None),
    Operation(name="docs", method="GET", path="/docs", handler=page.page,
        summary="Describe this API for people.", public=True, query=None, content="text/html"),
)
# fmt: on
