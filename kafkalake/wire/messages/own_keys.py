"""The keys of kafkalake's own APIs: from `OWN_FROM` on, so that no version of Kafka's will have them."""

OWN_FROM = 10_000
"""Own fields of Kafka's messages have tags from here on too."""
UPDATE_IMAGE_KEY = 10_002
FETCH_SEGMENT_KEY = 10_003
CONTROLLER_VOTE_KEY = 10_004
REPORT_CHANGES_KEY = 10_005
KNOWN_TRANSACTIONS_KEY = 10_006
LOWEST_OFFSETS_KEY = 10_007
DELAY_RECORDS_KEY = 10_008
DELIVER_RECORDS_KEY = 10_009
DESCRIBE_DELAYED_KEY = 10_010
