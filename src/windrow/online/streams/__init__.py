"""Streams: messages become rows of the source's shard, once each.

reading     Kafka or a folder ──▶ messages of a micro-batch
parsing     messages ──▶ rows, or the reason why not (envelopes)
batches     rows ──▶ shard, the rest ──▶ quarantine; one job, one mark
poison      what to do if a message makes that job fail
running     several streams in one process; tidying
figures     lag, rates, freshness: as lines, and for Prometheus
"""
