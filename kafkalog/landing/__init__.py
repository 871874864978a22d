"""Landing of rows: tasks stage batches in files beside the logs, and one commit appends them, each once."""
