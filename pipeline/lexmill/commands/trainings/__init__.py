"""Trainings beside the workspace, one after the other: what a search and a comparison share."""
