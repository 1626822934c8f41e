"""An encoder whose attention is whole, projected (Linformer) or by random features (Performer)."""
