"""What all other packages build on: errors, storage, paths, progress, the workspace, strict reading."""
