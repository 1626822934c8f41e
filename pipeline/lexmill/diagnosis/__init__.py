"""What a workspace still holds of processes that died: found, told, and put right where that is safe."""
