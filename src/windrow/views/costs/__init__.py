"""What maintained views cost: estimated before they run, and measured as they do."""
