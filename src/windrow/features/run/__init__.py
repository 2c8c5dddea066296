"""Running a plan, stage by stage."""
