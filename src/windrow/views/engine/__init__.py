"""The engine of views: defining, planning, filling and ticking them."""
