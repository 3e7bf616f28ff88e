"""What is sent and how its answer is checked: plain Python, with nothing of locust in it."""
