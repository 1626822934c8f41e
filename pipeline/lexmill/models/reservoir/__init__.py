"""The echo state network: fixed recurrent weights, a trained read-out."""
