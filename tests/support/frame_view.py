"""Frames of messages as tests look at them."""

from dittomq._pb.ditto.messaging.v1 import messaging_pb2 as pb


def spelled_out(frame: pb.PublishStreamRequest) -> pb.PublishStreamRequest:
    """The frame with its messages one by one."""
    messages = [
        pb.Message(topic=run.topic, queue=run.queue if run.HasField("queue") else None, tag=run.tag, body=body)
        for run in frame.runs
        for body in run.bodies
    ]
    whole = pb.PublishStreamRequest()
    whole.CopyFrom(frame)
    whole.ClearField("runs")
    whole.messages.extend(messages)
    return whole
