"""What every room stands on: errors, storage, paths, progress, the workspace, strict reading."""
