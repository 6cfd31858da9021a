"""Publishing to Delta: what brokers report (`broker_reports`), and what the controller makes of it (`lake_publisher`)."""
