"""What should be, worked out from what is: pure functions, one policy a file, no API and no clock."""
