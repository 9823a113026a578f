"""What tests/verbs/matrix and tests/verbs/compare are made of."""
