"""What maintainers run beside the program: the pictures of the documentation."""
