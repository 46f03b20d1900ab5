"""What confluent-kafka says went wrong, in the port's words; ``kafka_client`` has it for kafka-python."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from service.log.port import LogError, LogFenced, LogUnavailable, LogUnusable

#: A worker that has been passed over by its group, or whose transactional id another one uses now.
_FENCED = {
    KafkaError._FATAL,
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,  # the cluster has forgotten an id that was idle for days
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._ASSIGNMENT_LOST,
}
#: What was to be read next is gone: whoever starts afresh finds that out and decides.
_GONE = {
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.OFFSET_OUT_OF_RANGE,
}
#: What a person has to put right. Everything that is neither this nor fencing may work when tried again.
_UNUSABLE = {
    KafkaError._INVALID_ARG,
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError._BAD_MSG,
    KafkaError._LOG_TRUNCATION,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_MSG,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.INVALID_TRANSACTION_TIMEOUT,
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.POLICY_VIOLATION,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.UNSUPPORTED_VERSION,
}

#: A partition that has just been made, or whose leader moves. The library asks no second time by itself.
MOVING = {
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
}


def log_error(error: Exception, aside: str = "") -> LogError:
    """The port's word for an error of the library. An error of the port stays what it is."""
    if isinstance(error, LogError):
        return error
    cause = error.args[0] if isinstance(error, KafkaException) and error.args else error
    if not isinstance(cause, KafkaError):
        return LogUnavailable(f"Kafka cannot do it now ({error})")
    what = f"{cause.name()}: {cause.str()}"
    if cause.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        return LogUnusable(f"a message is larger than the cluster or the settings allow ({what})")
    if cause.code() in _UNUSABLE:  # first: some of these end a producer too
        return LogUnusable(f"Kafka refuses ({what})")
    if cause.fatal() or cause.code() in _FENCED:
        return LogFenced(f"another worker has taken over ({what})")
    if cause.code() in _GONE:
        return LogFenced(f"what comes next is gone ({what})")
    return LogUnavailable(f"Kafka cannot do it now ({what}{aside})")
