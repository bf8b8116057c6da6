"""What should be against what is: plan and apply."""
