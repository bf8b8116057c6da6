"""What the demo and the tests run on: a real PostgreSQL from a wheel, in a folder of one's own."""
